//! What every request of the traffic port shares: the intake, budgets, settings, readiness.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mesh_base::Stop;
use mesh_frame::TenantId;
use mesh_server::{AnswerBudget, AnswerShare, BodyLimits, BodyReader, Readiness};

use super::openapi::openapi;
use crate::Intake;

/// What the edge is told by the configuration.
#[derive(Clone, Debug)]
pub struct HttpEdgeSettings {
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// Bytes of all poll answers and of what streams are writing.
    pub answers_in_flight_bytes: u64,
    /// The longest silence of a stream, after which a comment is written.
    pub stream_keep_alive: Duration,
    /// Where clients reach this very instance; empty: wherever they reached it.
    pub instance_url: String,
    /// The origins whose pages may call, such as `https://app.example`; `*`: all of them.
    pub cors_origins: Vec<String>,
    /// The port of administration, which who looks for it here is told of.
    pub admin_port: Option<u16>,
    /// The API document that `/openapi.json` shows.
    pub document: Bytes,
}

impl Default for HttpEdgeSettings {
    fn default() -> Self {
        Self {
            body: BodyLimits::DEFAULT,
            answers_in_flight_bytes: 256 << 20,
            // Clients are promised fifteen seconds.
            stream_keep_alive: Duration::from_secs(14),
            instance_url: String::new(),
            cors_origins: Vec::new(),
            admin_port: None,
            document: openapi().to_string().into(),
        }
    }
}

/// The edge; cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpEdge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    intake: Intake,
    bodies: BodyReader,
    answers: AnswerBudget,
    settings: HttpEdgeSettings,
    readiness: Readiness,
    stop: Stop,
}

impl HttpEdge {
    /// The edge before an intake. `stop` ends waiting polls and streams; until `readiness` is open every route is `not_ready`.
    pub fn new(intake: Intake, settings: HttpEdgeSettings, readiness: Readiness, stop: Stop) -> Self {
        let bodies = BodyReader::new(settings.body);
        let answers = AnswerBudget::new(settings.answers_in_flight_bytes);
        Self(Arc::new(Inner { intake, bodies, answers, settings, readiness, stop }))
    }

    pub(super) fn intake(&self) -> &Intake {
        &self.0.intake
    }

    pub(super) fn stop(&self) -> &Stop {
        &self.0.stop
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.readiness.is_ready()
    }

    pub(super) fn bodies(&self) -> &BodyReader {
        &self.0.bodies
    }

    /// The API document.
    pub(super) fn document(&self) -> Bytes {
        self.0.settings.document.clone()
    }

    pub(super) fn cors_origins(&self) -> &[String] {
        &self.0.settings.cors_origins
    }

    pub(super) fn admin_port(&self) -> Option<u16> {
        self.0.settings.admin_port
    }

    pub(super) fn instance_url(&self) -> &str {
        &self.0.settings.instance_url
    }

    pub(super) fn stream_keep_alive(&self) -> Duration {
        self.0.settings.stream_keep_alive
    }

    /// What the answers to a tenant may take of the memory for all.
    pub(super) fn answers_of(&self, tenant: &TenantId) -> AnswerShare {
        self.0.answers.of(tenant)
    }
}
