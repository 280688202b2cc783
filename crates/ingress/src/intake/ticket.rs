//! Tickets: what stands for a credential where a client cannot show one.

use mesh_frame::{ClientId, Event};
use mesh_gate::{Action, Admitted, Asks, Cost, Resource, Ticket};

use super::{Intake, entry::Incoming};

/// Asks for a ticket for a stream.
#[derive(Clone, Debug)]
pub struct AskTicket {
    /// For this client only; `None`: for any of the caller.
    pub client: Option<ClientId>,
}

impl Asks for AskTicket {
    fn action(&self) -> Action {
        Action::Subscribe
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Deliveries(&[])
    }

    fn cost(&self) -> Option<Cost> {
        None
    }
}

impl Incoming for AskTicket {
    fn events(&self) -> &[Event] {
        &[]
    }
}

impl Intake {
    /// A ticket; `None`: too many are out.
    pub fn ticket(&self, admitted: Admitted<AskTicket>) -> Option<Ticket> {
        let (asked, caller) = admitted.into_parts();
        self.gate.ticket(&caller, asked.client)
    }
}
