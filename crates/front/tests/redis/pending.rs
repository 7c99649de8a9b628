//! Connections that have not logged in cost others nothing: neither a connection nor their turn.

use crate::support::{Client, Site};
use server::config::Config;
use server::users::{Grant, Right, UserConfig, hash_password};
use std::time::Duration;

fn one_user(config: &mut Config) {
    let rights = vec![Grant { keyspace: "*".into(), allow: vec![Right::Read, Right::Write] }];
    let password_hash = hash_password(b"secret", [1; 16]).unwrap();
    config.users = vec![UserConfig { name: "fleet".into(), password_hash, rights }];
}

/// Until it succeeds: a slow machine may be too late for a short deadline.
fn logged_in(site: &Site) -> Client {
    loop {
        let mut client = site.connect();
        if client.raw_or_closed("AUTH fleet secret") == "+OK" {
            return client;
        }
    }
}

#[test]
fn silent_connections_do_not_keep_a_user_out() {
    let configure = |config: &mut Config| {
        one_user(config);
        config.clients.login_timeout = None;
    };
    let site = Site::with(configure, |options| options.connections_max = 10);
    let mut known = logged_in(&site);
    let mut silent: Vec<Client> = (0..50).map(|_| site.connect()).collect();
    // Threads take connections up in an order of their own: silent ones from before may come after
    // the newcomer, and take its place while it has not logged in. It asks again.
    let mut newcomers = (0..20).map(|_| site.connect());
    let newcomer = newcomers.find_map(|mut newcomer| {
        // One that has lost its place while its password was verified still gets its answer.
        let is_in = newcomer.raw_or_closed("AUTH fleet secret") == "+OK"
            && newcomer.raw_or_closed("PING") == "+PONG";
        is_in.then_some(newcomer)
    });
    let mut newcomer = newcomer.expect("a newcomer that asks again is let in");
    for _ in 0..50 {
        silent.push(site.connect());
    }
    assert_eq!(silent[0].read(), 0, "it has made room");
    for client in [&mut known, &mut newcomer] {
        assert_eq!(client.raw("PING"), "+PONG", "a logged-in connection stays");
    }
    // Of the silent ones the newest stay. Threads accept connections in an order of their own, so
    // any of these will do.
    let stays = |mut client: Client| client.raw_or_closed("PING").starts_with("-NOAUTH");
    assert!(silent.into_iter().rev().take(10).any(stays));
}

#[test]
fn a_connection_is_closed_at_the_login_deadline() {
    let configure = |config: &mut Config| {
        one_user(config);
        config.clients.login_timeout = Some(Duration::from_millis(50));
    };
    let site = Site::not_waited_for(configure);
    let mut known = logged_in(&site);
    let mut silent = site.connect();
    assert_eq!(silent.read(), 0);
    assert_eq!(known.raw("PING"), "+PONG", "the deadline is for pending connections only");
}

#[test]
fn an_idle_connection_is_closed_if_configured_unless_it_subscribes() {
    let configure = |config: &mut Config| {
        config.clients.idle_timeout = Some(Duration::from_millis(100));
    };
    let site = Site::not_waited_for(configure);
    let mut listener = loop {
        let mut listener = site.connect();
        if listener.raw_or_closed("SUBSCRIBE __keyspace@0__:k").contains("subscribe") {
            break listener;
        }
    };
    let mut idle = site.connect();
    while idle.read() > 0 {}
    while site.connect().raw_or_closed("SET k v") != "+OK" {}
    assert!(listener.reply().1.contains("__keyspace@0__:k"), "it still listens");
}

#[test]
fn wrong_passwords_do_not_hold_up_a_right_one() {
    let configure = |config: &mut Config| {
        one_user(config);
        // A slow machine takes longer to verify twenty passwords than there is for a login.
        config.clients.login_timeout = None;
    };
    let site = Site::with(configure, |_| {});
    let guess = b"AUTH fleet wrong\r\n";
    let mut guessing: Vec<Client> = (0..20).map(|_| site.connect()).collect();
    for client in &mut guessing {
        assert!(client.raw("AUTH fleet wrong").starts_with("-WRONGPASS"));
    }
    // More than may wait, and all of them before the right one.
    guessing.iter_mut().for_each(|client| client.send(guess));
    assert_eq!(site.connect().raw("AUTH fleet secret"), "+OK", "it is not refused as busy");
    let refused = guessing.iter_mut().map(|client| client.reply().1);
    let busy = "-TRYAGAIN too many logins wait";
    assert!(
        refused.into_iter().all(|said| said.starts_with("-WRONGPASS") || said.starts_with(busy))
    );
}
