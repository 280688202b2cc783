//! Tickets: what a browser shows in place of a credential when it opens a stream.
//!
//! A page cannot give `EventSource` a header. It asks for a ticket with its credential, and puts the ticket into the
//! address of the stream. A ticket is good once, for a minute, at the process that gave it, for one client where it
//! was asked for one; only a hash of it is kept, and no more of them than a bound.

use std::{collections::HashMap, sync::Arc, time::Duration};

use data_encoding::BASE64URL_NOPAD;
use mesh_base::{Clock, UnixMillis};
use mesh_frame::ClientId;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::{Caller, CredentialKind, Identity};

/// How long a ticket is good.
pub(crate) const GOOD_FOR: Duration = Duration::from_secs(60);
/// How many are out at once.
const MOST: usize = 100_000;
/// How many of them are of one principal.
const MOST_OF_ONE: usize = 1_000;

/// A ticket with its end.
#[derive(Clone)]
pub struct Ticket {
    /// What the client shows. A secret.
    pub text: String,
    /// Until when.
    pub good_until: UnixMillis,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("good_until", &self.good_until).finish_non_exhaustive()
    }
}

/// The tickets that are out.
pub(crate) struct Tickets {
    clock: Clock,
    out: Mutex<HashMap<[u8; 32], Out>>,
}

struct Out {
    identity: Arc<Identity>,
    failed_open: Option<&'static str>,
    client: Option<ClientId>,
    good_until: UnixMillis,
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl Tickets {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, out: Mutex::default() }
    }

    /// A ticket for `caller`; `None`: too many are out.
    pub(crate) fn issue(&self, caller: &Caller, client: Option<ClientId>) -> Option<Ticket> {
        let mut random = [0; 32];
        #[expect(clippy::disallowed_methods, reason = "a ticket is a secret")]
        getrandom::fill(&mut random).ok()?;
        let text = BASE64URL_NOPAD.encode(&random);
        let now = self.clock.now();
        let credential_ends = caller.identity().expires_at.unwrap_or(UnixMillis(u64::MAX));
        let good_until = now.plus(GOOD_FOR).min(credential_ends);
        let mut out = self.out.lock();
        if is_full(&out, caller) {
            out.retain(|_, out| out.good_until > now);
            if is_full(&out, caller) {
                return None;
            }
        }
        let identity = Identity { credential: CredentialKind::Ticket, ..Identity::clone(caller.identity()) };
        out.insert(
            hash(text.as_bytes()),
            Out { identity: Arc::new(identity), failed_open: caller.failed_open(), client, good_until },
        );
        Some(Ticket { text, good_until })
    }

    /// Uses a ticket up: who it is for, if it is good for this client. One that is shown for another client is
    /// used up too.
    pub(crate) fn redeem(
        &self,
        text: &str,
        client: &ClientId,
    ) -> Option<(Arc<Identity>, Option<&'static str>)> {
        let now = self.clock.now();
        let found = self.out.lock().remove(&hash(text.as_bytes()))?;
        let fits = found.client.is_none_or(|its| its == *client) && found.good_until > now;
        fits.then_some((found.identity, found.failed_open))
    }
}

/// Whether no more may be out, at all or of this principal.
fn is_full(out: &HashMap<[u8; 32], Out>, caller: &Caller) -> bool {
    let is_callers = |other: &&Out| {
        other.identity.tenant == *caller.tenant() && other.identity.principal.as_ref() == caller.principal()
    };
    out.len() >= MOST || (out.len() >= MOST_OF_ONE && out.values().filter(is_callers).count() >= MOST_OF_ONE)
}

/// Tickets are looked up by their hash: the time that takes says nothing about them.
fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use mesh_frame::TenantId;

    use super::*;
    use crate::{Presented, Principal, Protocol};

    fn caller(name: &str) -> Caller {
        let tenant = TenantId::new("T").expect("legal");
        let identity = Identity { principal: Some(Principal::new(name)), ..Identity::anonymous(tenant) };
        let presented = Presented {
            authorization: None,
            certificate: None,
            trace: None,
            remote: None,
            protocol: Protocol::Http,
        };
        Caller::new(Arc::new(identity), &presented, None)
    }

    fn client(name: &str) -> ClientId {
        ClientId::new(name).expect("legal")
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_good_once_for_a_minute_and_for_its_client() {
        let tickets = Tickets::new(Clock::starting_at(UnixMillis(1)));
        let issue = |client| tickets.issue(&caller("alice"), client).expect("a ticket").text;
        let redeem = |text: &str, name| tickets.redeem(text, &client(name)).map(|(who, _)| who);

        let ticket = issue(None);
        let who = redeem(&ticket, "c").expect("good");
        assert_eq!(who.principal.as_ref().map(Principal::as_str), Some("alice"));
        assert_eq!(who.credential, CredentialKind::Ticket);
        assert!(redeem(&ticket, "c").is_none(), "once");
        let ticket = issue(Some(client("c")));
        assert!(redeem(&ticket, "d").is_none() && redeem(&ticket, "c").is_none());
        let ticket = issue(None);
        tokio::time::advance(GOOD_FOR).await;
        assert!(redeem(&ticket, "c").is_none());
        assert!(redeem("", "c").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_has_more_tickets_out_than_the_bound_and_ends_make_room() {
        let tickets = Tickets::new(Clock::starting_at(UnixMillis(1)));
        let alice = caller("alice");
        for _ in 0..MOST_OF_ONE {
            assert!(tickets.issue(&alice, None).is_some());
        }
        assert!(tickets.issue(&alice, None).is_none());
        assert!(tickets.issue(&caller("bob"), None).is_some(), "others are not held up");
        tokio::time::advance(GOOD_FOR).await;
        assert!(tickets.issue(&alice, None).is_some());
    }
}
