//! Members that nothing is heard of are removed, where that is configured.

use std::{collections::HashSet, time::Duration};

use mesh_base::Stop;

use super::Groups;
use crate::group::member_of;

/// How often it is looked for them, where the time is long.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Groups {
    /// Removes clients that were silent for as long as is configured, until it is told to stop. A client is there while it
    /// has an open stream or a waiting poll, and is heard of when it polls or settles something. Removed, its polls are
    /// answered that its subscription has expired; its own groups go with it, shared ones stay.
    pub async fn expire_idle(self, stop: Stop) {
        let Some(timeout) = self.core.activity.timeout() else { return };
        let every = (timeout / 4).clamp(Duration::from_millis(100), LOOK_EVERY);
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(every) => {}
            }
            self.expire_once().await;
        }
    }

    async fn expire_once(&self) {
        let (core, now) = (&self.core, self.core.clock.now());
        let clients = core.directory.clients.all();
        let members: HashSet<_> = clients.iter().map(|(tenant, client)| member_of(tenant, client)).collect();
        core.activity.keep(|member| members.contains(&member));
        for (tenant, client) in clients {
            let member = member_of(&tenant, &client);
            let groups = core.directory.of_client(&tenant, &client).unwrap_or_default();
            let waits = || groups.iter().any(|group| group.waiters.members().contains(&member.0));
            if self.streams.is_open(&tenant, &client) || waits() {
                core.activity.heard(member, now);
            } else if core.activity.is_silent(member, now) {
                // It may have come meanwhile.
                let still =
                    move |groups: &Self| groups.core.activity.is_silent(member, groups.core.clock.now());
                match self.evict(&tenant, &client, still).await {
                    Ok(0) => {}
                    Ok(subscriptions) => {
                        core.signals.idle.inc_by(subscriptions as u64);
                        tracing::info!(%tenant, %client, subscriptions, "nothing was heard of a client for too long; removed");
                    }
                    // It is tried again at the next look.
                    Err(error) => {
                        tracing::warn!(%tenant, %client, %error, "a silent client could not be removed")
                    }
                }
            }
        }
    }
}
