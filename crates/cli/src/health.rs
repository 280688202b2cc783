//! `eventmesh health`: whether the server serves, for health checks that have no other program.

use std::time::Duration;

use clap::Args;
use mesh_client::Error;

use crate::{
    connect::{Connect, Local},
    output::{answer, cell},
    problem::{Failure, Outcome},
};

/// How long the answer may take.
const SOON: Duration = Duration::from_secs(5);

/// Asks.
#[derive(Debug, Args)]
pub struct Health {
    #[command(flatten)]
    pub(crate) connect: Connect,
}

impl Health {
    pub(crate) async fn run(self, local: &Local) -> Result<(), Failure> {
        let (form, admin) = (self.connect.form()?, self.connect.admin(local)?);
        let asked = tokio::time::timeout(SOON, admin.client.get(&["ready"], &[])).await;
        match asked.unwrap_or(Err(Error::Timeout(SOON))) {
            Ok(ready) => answer(form, &ready, |ready| format!("{}\n", cell(&ready["status"]))),
            // The reason is in the body, which is no error of the usual form.
            Err(Error::Refused { status: 503, .. }) => {
                Err(Failure::new(Outcome::Unavailable, "the server is not ready")
                    .advice("Its log says what it waits for; GET /admin/health names the components."))
            }
            Err(error) => Err(admin.failure(&error)),
        }
    }
}
