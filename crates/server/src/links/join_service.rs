//! Sites that want to join this deployment: they belong to none yet, and may request nothing else.

use super::Links;
use super::connection::Connection;
use crate::batcher::Outcome;
use model::{
    Body, Command, DeploymentCommand, Failure, Refusal, RegistryChange, RegistryError, limits,
};
use wire::entry;
use wire::peer::{Answered, Content, ForwardedAnswer, Member, Members, Message};

impl Links {
    /// Serves the request of a node without a deployment.
    pub(super) async fn serve_joiner(&self, mut connection: Connection) {
        let answering = async {
            while let Some(Content::Forward(forward)) = connection.receive().await?.content {
                for asked in forward.requests {
                    let outcome = self.ask_for_joiner(asked.request).await;
                    let members = self.nodes_of_taken(&outcome);
                    let outcome = entry::encode_reply(&outcome);
                    let answers = vec![ForwardedAnswer {
                        id: asked.id,
                        outcome,
                        members,
                        ..Default::default()
                    }];
                    let message: Message = Content::Answered(Answered { answers }).into();
                    connection.send(&message).await?;
                }
            }
            Ok::<(), super::LinkError>(())
        };
        let _ = tokio::time::timeout(2 * limits::REQUEST_DEADLINE, answering).await;
    }

    /// The addresses of the nodes of the site that has the name already: the joining node may be
    /// one of them.
    fn nodes_of_taken(&self, outcome: &Outcome) -> Option<Members> {
        let Err(Failure::Refused(Refusal::Registry(RegistryError::NameTaken(name)))) = outcome
        else {
            return None;
        };
        let registry = self.inbound()?.registry()?;
        let nodes = registry.site_named(name.as_str())?.nodes.iter().map(|node| Member {
            node: node.node.0,
            address: node.peer.clone(),
            ..Member::default()
        });
        Some(Members { nodes: nodes.collect(), ..Members::default() })
    }

    async fn ask_for_joiner(&self, request: model::Bytes) -> Outcome {
        let refused = Failure::NotServing("it takes no such request from a node that joins");
        let Some(inbound) = self.inbound() else { return Err(Failure::NoLeader) };
        let Ok(request) = entry::decode_request(request) else { return Err(refused) };
        match request.body {
            Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(
                RegistryChange::Join(_),
            ))) => inbound.join(request).await,
            _ => Err(refused),
        }
    }
}
