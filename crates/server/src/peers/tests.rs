//! Tokens and secrets of whole nodes, without sockets.

use super::*;
use crate::config::Layer;

const OF: Transcript<'_> = Transcript { dialler: b"d", acceptor: b"a", channel: b"c" };

fn auth(site: &str, peers: PeersConfig) -> PeerAuth {
    let folder = tempfile::tempdir().unwrap();
    let (site, data) = (SiteName::new(site).unwrap(), folder.path().to_owned());
    let config = Config { site, peers, data, ..Config::default() };
    PeerAuth::open(&config, Clock::start()).unwrap()
}

fn with(secret: &str, site_secret: Option<&str>) -> PeersConfig {
    let hidden = |letter: &str| Hidden::new(letter.repeat(32));
    PeersConfig {
        secret: Some(hidden(secret)),
        site_secret: site_secret.map(hidden),
        ..PeersConfig::default()
    }
}

fn hello(site: &str) -> Hello {
    Hello { site: site.into(), node: 7, challenge: vec![1; 32].into(), ..Hello::default() }
}

fn believes(one: &PeerAuth, other: &PeerAuth) -> bool {
    let proof = other.prove(&hello(one.site.as_str()), &OF, End::Dialler);
    let other = hello(other.site.as_str());
    one.judge(&other, None, &OF, End::Dialler, Some(&proof)).is_ok()
}

#[test]
fn a_site_may_have_a_secret_of_its_own() {
    let shared = |site| auth(site, with("d", None));
    assert!(
        believes(&shared("pier"), &shared("pier")) && believes(&shared("pier"), &shared("quay"))
    );
    let own = |site, letter| auth(site, with("d", Some(letter)));
    assert!(believes(&own("pier", "p"), &own("pier", "p")));
    assert!(!believes(&own("pier", "p"), &own("pier", "q")));
    assert!(!believes(&own("pier", "p"), &shared("pier")));
    assert!(believes(&own("pier", "p"), &own("quay", "q")), "of one deployment");
    assert!(!believes(&shared("pier"), &auth("quay", with("e", None))));
}

#[test]
fn secrets_are_changed_one_node_after_the_other() {
    let two = |text: &str| {
        let secret =
            Some(Hidden::new(text.split(' ').map(|l| l.repeat(32)).collect::<Vec<_>>().join("\n")));
        auth("pier", PeersConfig { secret, ..PeersConfig::default() })
    };
    let (old, both, new) = (two("o"), two("n o"), two("n"));
    for (one, other) in [(&old, &both), (&both, &new), (&both, &both)] {
        assert!(believes(one, other) && believes(other, one));
    }
    assert!(!believes(&old, &new) && !believes(&new, &old));
}

fn enrolled(at: &PeerAuth, site: &str, text: &str) -> Result<Option<PeerAuth>, TokenError> {
    let token = JoinToken::parse(text)?;
    let shown = PeerAuth::show_token(&token, &OF);
    let answer = at.accept_token(&hello(site), &OF, &shown)?;
    let joiner = auth(site, PeersConfig::default());
    let data = tempfile::tempdir().unwrap();
    let Some(taken) = joiner.take_given(&token, &OF, &answer, data.path()) else { return Ok(None) };
    taken.unwrap();
    assert!(has_secret(data.path()));
    Ok(Some(joiner))
}

/// A node that has kept only some of its secrets shows its token again.
#[test]
fn a_node_is_enrolled_once_all_secrets_are_kept() {
    let pier = auth("pier", with("d", Some("p")));
    let (text, _) = pier.make_token(TokenScope::Site, Duration::from_secs(3600)).unwrap();
    let token = JoinToken::parse(&text).unwrap();
    let answer =
        pier.accept_token(&hello("pier"), &OF, &PeerAuth::show_token(&token, &OF)).unwrap();
    let (data, none) = (tempfile::tempdir().unwrap(), PeersConfig::default());
    // The second file cannot be written.
    let in_the_way = data.path().join("peer-secret.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let config = || Config { data: data.path().to_owned(), ..Config::default() };
    let opened = || PeerAuth::open(&config(), Clock::start()).unwrap();
    assert!(opened().take_given(&token, &OF, &answer, data.path()).unwrap().is_err());
    assert!(opened().has_secret() && !opened().is_enrolled(&none));
    std::fs::remove_dir(&in_the_way).unwrap();
    opened().take_given(&token, &OF, &answer, data.path()).unwrap().unwrap();
    assert!(opened().is_enrolled(&none));
}

#[test]
fn a_token_gives_the_secret_to_its_node() {
    let hour = Duration::from_secs(3600);
    let pier = auth("pier", with("d", Some("p")));
    let (text, expires_ms) = pier.make_token(TokenScope::Site, hour).unwrap();
    assert!(expires_ms > pier.clock.now().wall_ms);
    let joiner = enrolled(&pier, "pier", &text).unwrap().unwrap();
    assert!(believes(&pier, &joiner) && believes(&joiner, &pier));
    let other = enrolled(&pier, "quay", &text).err().unwrap();
    assert!(other.to_string().contains("is for a node of site pier"), "{other}");
    let at_quay = auth("quay", with("d", None));
    assert!(matches!(enrolled(&at_quay, "pier", &text), Err(TokenError::OtherSite { .. })));
    let strange = auth("pier", with("x", None));
    assert!(matches!(enrolled(&strange, "pier", &text), Err(TokenError::WrongSecret { .. })));

    let (text, _) = pier.make_token(TokenScope::Deployment, hour).unwrap();
    let joiner = enrolled(&pier, "quay", &text).unwrap().unwrap();
    assert!(believes(&pier, &joiner));
    let as_pier = enrolled(&pier, "pier", &text).unwrap().unwrap();
    assert!(!believes(&pier, &as_pier), "it gives no site's own secret");
}

#[test]
fn a_token_expires_and_cannot_be_made_longer() {
    let pier = auth("pier", with("d", None));
    let key = pier.keys(Scope::Site).remove(0);
    let claims = |expires_ms| TokenClaims {
        site: "pier".into(),
        expires_ms,
        nonce: Bytes::from_static(b"n"),
    };
    let old = JoinToken::make(&claims(pier.clock.now().wall_ms - 5_000), &key);
    let refused = enrolled(&pier, "pier", &old.to_text()).err().unwrap();
    assert!(refused.to_string().contains("expired 5 s ago"), "{refused}");
    // The bearer claims a later expiry.
    let mut shown = PeerAuth::show_token(&old, &OF);
    shown.token = claims(u64::MAX).encode_to_vec().into();
    let refused = pier.accept_token(&hello("pier"), &OF, &shown);
    assert!(matches!(refused, Err(TokenError::WrongSecret { .. })), "{refused:?}");
    let made = |life| pier.make_token(TokenScope::Site, life);
    assert!(matches!(made(Duration::from_millis(10)), Err(TokenError::Life { .. })));
    assert!(matches!(made(limits::JOIN_TOKEN_LIFE_MAX * 2), Err(TokenError::Life { .. })));
    let none = auth("pier", PeersConfig::default());
    let refused = none.make_token(TokenScope::Site, Duration::from_secs(9)).unwrap_err();
    assert!(refused.to_string().contains("[peers] secret_file"), "{refused}");
}

#[test]
fn the_other_end_of_a_token_must_have_its_secret() {
    let pier = auth("pier", with("d", None));
    let (text, _) = pier.make_token(TokenScope::Site, Duration::from_secs(9)).unwrap();
    let token = JoinToken::parse(&text).unwrap();
    let joiner = auth("pier", PeersConfig::default());
    let folder = tempfile::tempdir().unwrap();
    let given = Secrets { deployment: vec!["x".repeat(32)], site: Vec::new() };
    let other = Key::of_bytes(&[1; 32]);
    let sealed = other.seal(&OF, &given.encode_to_vec());
    let macs = vec![other.prove(&OF, End::Acceptor, &[&sealed])];
    let answer = Proof { macs, sealed, ..Proof::default() };
    assert!(joiner.take_given(&token, &OF, &answer, folder.path()).is_none());
    assert!(!joiner.has_secret() && !has_secret(folder.path()));
}

#[test]
fn which_configurations_require_a_proof() {
    let resolve = |text: &str| {
        let file = crate::config::file::parse("f", text).unwrap();
        PeerAuth::open(&Config::resolve(file, Layer::default()).unwrap(), Clock::start()).unwrap()
    };
    assert!(!resolve("data = \"/nonexistent\"").asks(), "loopback, without anything");
    let hash = crate::users::hash_password(b"secret", [7; 16]).unwrap();
    let user = format!("[[user]]\nname = \"ops\"\npassword_hash = \"{hash}\"");
    assert!(resolve(&format!("data = \"/nonexistent\"\n{user}")).asks());
    let open = "data = \"/nonexistent\"\ninsecure = \"allow-remote-without-credentials\"\n\
                [listen]\npeer = \"0.0.0.0:1\"";
    assert!(!resolve(open).asks(), "as the file states");
    assert!(resolve(&format!("{open}\n{user}")).asks());
    let tls = "data = \"/nonexistent\"\n[tls.peer]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"";
    assert!(resolve(tls).asks());
}
