//! Ballots about the registry: what registrars promise and accept, and what they answer.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_struct};
use model::{
    Ballot, Changed, RegistrarAnswer, RegistrarSet, RegistrarStep, RegistrarView, Registrars,
    RegistryView, Remembered, Retained, SiteId, Term, TermBegan, TermIds, limits,
};

code_struct!(Term { number, site });
code_struct!(Ballot { term, round, site });
code_struct!(Registrars { set, since, before });
code_struct!(Remembered { id, outcome });
code_struct!(TermBegan { after, site_next, keyspace_next, ids });
code_struct!(Retained { joins, keyspaces, failovers, choices });
code_struct!(TermIds { site_first, keyspace_first, sites_dropped, keyspaces_dropped });
code_enum!(Changed as "change of the registry" {
    1 => Site(site),
    2 => Keyspace(keyspace),
    3 => Dropped(keyspace),
    110 => Failovers,
});

code_enum!(RegistrarStep as "step of a registrar" {
    1 => Reserve(above),
    2 => ReserveTerm,
    3 => Prepare(ballot),
    4 => Accept(ballot, registry),
});

code_enum!(RegistrarAnswer as "answer of a registrar" {
    1 => Reserved(ballot),
    2 => TermReserved(ballot, registry),
    3 => Promised(registry),
    4 => Accepted,
    5 => Refused(ballot),
});

code_struct!(RegistrarView { site, answers });
code_struct!(RegistryView {
    version,
    changes,
    registrars,
    waiting,
    to_hand_in,
    silent,
    answering,
    has_majority,
    recovered,
});

impl Code for RegistrarSet {
    fn put(&self, out: &mut Vec<u8>) {
        self.sites().to_vec().put(out);
    }

    fn take(from: &mut Input) -> Result<RegistrarSet, EntryError> {
        let sites: Vec<SiteId> = Code::take(from)?;
        let is_ordered = sites.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_ordered || sites.len() > limits::REGISTRARS_MAX {
            return Err(from.malformed("set of registrars"));
        }
        Ok(sites.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode_command, encode_command};
    use super::super::{decode_registrar, encode_registrar};
    use super::super::{decode_reply, decode_request, encode_reply, encode_request};
    use model::{
        Answer, BackupChoice, Ballot, Body, ClientId, Command, DeploymentCommand, DeploymentId,
        KeyspaceSpec, RegistrarAnswer, RegistrarStep, Registry, RegistryChange, Request, RequestId,
        Retained, SiteId, Term,
    };

    fn ballot() -> Ballot {
        Ballot { term: Term { number: 1, site: SiteId(2) }, round: 300, site: SiteId(3) }
    }

    fn registry() -> Box<Registry> {
        let mut registry = Registry::empty(DeploymentId(7), 9);
        registry.begin(SiteId(1));
        Box::new(registry)
    }

    #[test]
    fn a_step_stays_as_it_is() {
        let promise =
            Command::Deployment(DeploymentCommand::Registrar(RegistrarStep::Prepare(ballot())));
        assert_eq!(&encode_command(&promise)[..], b"\x01\x64\x03\x01\x02\xac\x02\x03");
        let change = RegistryChange::Registrar(SiteId(2));
        let id = Some(RequestId { client: ClientId(8), sequence: 4, acknowledged_below: 3 });
        let body = Body::Registry { change: Box::new(change), id };
        let request = Request::new(body);
        assert_eq!(&encode_request(&request)[..], b"\x01\x64\x66\x02\x01\x08\x04\x03\x00");
    }

    #[test]
    fn every_step_comes_back_and_none_is_another_when_it_is_cut() {
        for step in [
            RegistrarStep::Reserve(ballot()),
            RegistrarStep::ReserveTerm,
            RegistrarStep::Prepare(ballot()),
            RegistrarStep::Accept(ballot(), registry()),
        ] {
            let command = Command::Deployment(DeploymentCommand::Registrar(step));
            let bytes = encode_command(&command);
            for cut in 0..bytes.len() {
                assert!(decode_command(bytes.slice(..cut)).is_err(), "{command:?} cut at {cut}");
            }
            assert_eq!(decode_command(bytes), Ok(command));
        }
        for answer in [
            RegistrarAnswer::Reserved(ballot()),
            RegistrarAnswer::TermReserved(ballot(), registry()),
            RegistrarAnswer::Promised(registry()),
            RegistrarAnswer::Accepted,
            RegistrarAnswer::Refused(ballot()),
        ] {
            let reply = Ok(Answer::Registrar(answer));
            assert_eq!(decode_reply(encode_reply(&reply)), Ok(reply));
        }
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        for body in [
            Body::Registry { change: Box::new(RegistryChange::CreateKeyspace(spec)), id: None },
            Body::Registry {
                change: Box::new(RegistryChange::DropKeyspace("cars".into())),
                id: None,
            },
            Body::ShowRegistry,
            Body::RecoverRegistry { without: vec![SiteId(2)], accept: true },
        ] {
            let request = Request::new(body);
            assert_eq!(decode_request(encode_request(&request)), Ok(request));
        }
    }

    #[test]
    fn format_1_of_what_a_site_keeps_of_the_registry_stays_as_it_is() {
        let mut kept = Retained::default();
        let row = encode_registrar(ballot(), ballot(), None, &kept);
        let expected = b"\x01\x01\x02\xac\x02\x03\x01\x02\xac\x02\x03\x00\x00\x00\x00\x00";
        assert_eq!(&row[..], expected);
        assert_eq!(decode_registrar(row), Ok((ballot(), ballot(), None, kept.clone())));
        kept.choices = vec![(SiteId(3), BackupChoice::Off)];
        let accepted = registry();
        let row = encode_registrar(ballot(), ballot(), Some(&accepted), &kept);
        assert_eq!(decode_registrar(row), Ok((ballot(), ballot(), Some(*accepted), kept)));
    }

    #[test]
    fn registrars_are_a_few_in_order() {
        let accept = Command::Deployment(DeploymentCommand::Registrar(RegistrarStep::Accept(
            ballot(),
            registry(),
        )));
        let mut bytes = encode_command(&accept).to_vec();
        // The set before: one site.
        let at = bytes.len() - 14;
        assert_eq!(bytes[at..at + 2], [1, 1]);
        bytes.splice(at..at + 2, [2, 1, 1]);
        assert!(decode_command(bytes.into()).is_err());
    }
}
