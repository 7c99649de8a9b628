//! The mutual proof of two nodes that they belong together, directly after their hellos.
//!
//! The dialling node begins; the other sends no proof before it has checked that one. A refused
//! node is sent the reason, since the usual cause is a missing secret.

use super::connection::Connection;
use super::{LinkError, Links, in_time};
use crate::peers::judge::NotProved;
use crate::peers::mac::{End, Transcript};
use crate::peers::{JoinToken, PeerAuth, TokenError};
use std::path::Path;
use std::time::Duration;
use wire::peer;
use wire::proof::{Handshake, Proof, Refused, Step};

/// The longest displayed reason from another node.
const WHY_CHARS_MAX: usize = 600;
/// The pause before all addresses are tried again.
const ASK_AGAIN: Duration = Duration::from_millis(300);

impl Links {
    /// Sends this node's proof to the dialled node and checks that node's proof.
    pub(super) async fn prove(&self, connection: &mut Connection) -> Result<(), LinkError> {
        let auth = self.auth();
        if !is_asked(auth, connection) {
            return Ok(judge(auth, connection, End::Acceptor, None)?);
        }
        let proof =
            auth.prove(connection.hello(), &transcript(connection, End::Dialler), End::Dialler);
        connection.send(&Handshake::from(proof)).await?;
        let answer = next_proof(connection).await?;
        Ok(judge(auth, connection, End::Acceptor, Some(&answer))?)
    }

    /// Checks the proof of a node that has connected, and sends this node's. `None`: the node
    /// presented a join token, received its secrets, and must connect again.
    pub(super) async fn check(
        &self,
        mut connection: Connection,
    ) -> Result<Option<Connection>, LinkError> {
        match self.admit(&mut connection).await {
            Ok(Some(())) => Ok(Some(connection)),
            Ok(None) => {
                connection.close().await;
                Ok(None)
            }
            Err(error) if error.is_refusal() => {
                let why = error.to_string();
                let _ = connection.send(&Handshake::from(Refused { why })).await;
                connection.close().await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn admit(&self, connection: &mut Connection) -> Result<Option<()>, LinkError> {
        let auth = self.auth();
        if !is_asked(auth, connection) {
            judge(auth, connection, End::Dialler, None)?;
            return Ok(Some(()));
        }
        let shown = next_proof(connection).await?;
        let of = transcript(connection, End::Acceptor);
        if !shown.token.is_empty() {
            let answer = auth.accept_token(connection.hello(), &of, &shown)?;
            connection.send(&Handshake::from(answer)).await?;
            return Ok(None);
        }
        judge(auth, connection, End::Dialler, Some(&shown))?;
        let proof = auth.prove(connection.hello(), &of, End::Acceptor);
        connection.send(&Handshake::from(proof)).await?;
        Ok(Some(()))
    }

    /// Presents a join token at the addresses until one node accepts it; ends early only if all
    /// refuse it.
    pub(crate) async fn enrol(
        &self,
        addresses: &[String],
        token: &JoinToken,
        data: &Path,
    ) -> Result<(), String> {
        let mut warned = false;
        loop {
            let mut refused = None;
            for address in addresses {
                match in_time(self.show_token(address, token, data)).await {
                    Ok(()) => return Ok(()),
                    Err(error) if error.is_refusal() => refused = Some(error),
                    Err(error) if !warned => {
                        tracing::warn!(address, "cannot join yet; retrying: {error}");
                        warned = true;
                    }
                    Err(error) => tracing::debug!(address, "cannot join yet: {error}"),
                }
            }
            if let Some(refused) = refused {
                return Err(refused.to_string());
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn show_token(
        &self,
        address: &str,
        token: &JoinToken,
        data: &Path,
    ) -> Result<(), LinkError> {
        let mut connection = self.greeted(address).await?;
        let other = connection.hello();
        if other.challenge.is_empty() || !other.asks_proof {
            let whose = format!("site {}", other.site);
            return Err(TokenError::NoSecret { whose }.into());
        }
        let proof = PeerAuth::show_token(token, &transcript(&connection, End::Dialler));
        connection.send(&Handshake::from(proof)).await?;
        let answer = next_proof(&mut connection).await?;
        let of = transcript(&connection, End::Dialler);
        let taken = self.auth().take_given(token, &of, &answer, data);
        Ok(taken.ok_or(LinkError::TokenNotKnown)??)
    }
}

/// Whether proofs are exchanged: either end requires them, and both support them.
fn is_asked(auth: &PeerAuth, connection: &Connection) -> bool {
    let other = connection.hello();
    !other.challenge.is_empty() && (auth.asks() || other.asks_proof)
}

/// The transcript that a proof on this connection covers; `own`: this node's end.
fn transcript(connection: &Connection, own: End) -> Transcript<'_> {
    let (ours, theirs) = connection.hellos();
    let channel = connection.session().map_or(&[][..], |session| &session.channel);
    match own {
        End::Dialler => Transcript { dialler: ours, acceptor: theirs, channel },
        End::Acceptor => Transcript { dialler: theirs, acceptor: ours, channel },
    }
}

/// Checks the proof of the node at the other `end`.
fn judge(
    auth: &PeerAuth,
    connection: &Connection,
    end: End,
    proof: Option<&Proof>,
) -> Result<(), NotProved> {
    let own = match end {
        End::Dialler => End::Acceptor,
        End::Acceptor => End::Dialler,
    };
    let roles = connection.session().map(|session| &session.roles);
    auth.judge(connection.hello(), roles, &transcript(connection, own), end, proof)
}

async fn next_proof(connection: &mut Connection) -> Result<Proof, LinkError> {
    let handshake: Handshake = peer::decode(connection.next_short_frame().await?)?;
    match handshake.step {
        Some(Step::Proof(proof)) if proof.is_well_formed() => Ok(proof),
        Some(Step::Refused(Refused { why })) => {
            let why = why.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
            Err(LinkError::RefusedBy(why))
        }
        _ => Err(peer::FrameError::Malformed("no proof".into()).into()),
    }
}

#[cfg(test)]
mod tests;
