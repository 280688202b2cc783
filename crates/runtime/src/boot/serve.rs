//! Run: the admin port first, then recovery, then traffic; and the reverse when told to stop.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use mesh_base::{Clock, Tasks};

use super::{build::Built, told::Told};
use crate::config::Settings;

/// What every step of a stop has at the least, also when the steps before took the whole bound.
const LEAST: Duration = Duration::from_millis(500);

/// How long the instance is not ready for want of the issuer's keys: valid tokens would be refused.
const KEYS_WITHIN: Duration = Duration::from_secs(10);

/// Serves until it is told to stop.
pub(super) async fn serve(built: Built, settings: &Settings, told: Told) -> anyhow::Result<ExitCode> {
    let bound = settings.instance.shutdown_timeout;
    let admin_tasks = Tasks::new();
    let traffic_tasks = Tasks::new();
    let delivery_tasks = Tasks::new();
    let Told { stopping, hung_up } = told;

    let (admin, admin_router, clock) = (built.admin, built.admin_router, built.clock);
    let (admin_signals, admin_stop) = (built.admin_signals, admin_tasks.stop());
    admin_tasks.spawn("admin", async move {
        if let Err(error) = admin.serve(admin_router, clock, admin_signals, admin_stop).await {
            tracing::error!(%error, "the admin port failed");
        }
    });

    let recovered = built.groups.recover().await.context("could not bring back what was in flight")?;
    tracing::info!(
        groups = recovered.groups,
        pending = recovered.pending,
        orphans = recovered.orphans,
        replayed = recovered.replayed,
        "recovered"
    );
    let listening = built.dispatcher.clone();
    built.announcements.listen(Box::new(move |topic, records| listening.appended(topic, records)));
    built.subscriptions.follow(&delivery_tasks);
    built.sessions.follow(&delivery_tasks);
    let stop = delivery_tasks.stop();
    delivery_tasks.spawn("ticker", built.dispatcher.clone().tick(stop.clone()));
    delivery_tasks.spawn("attendant", built.dispatcher.clone().attend(stop.clone()));
    delivery_tasks.spawn("idle clients", built.groups.clone().expire_idle(stop.clone()));
    delivery_tasks.spawn("progress", built.dispatcher.clone().keep_progress(stop.clone()));
    delivery_tasks.spawn("dead letters", built.dispatcher.clone().write_dead_letters(stop.clone()));
    delivery_tasks.spawn("health", built.health.clone().keep_looking(clock, stop.clone()));
    let every = settings.storage.retention_interval;
    delivery_tasks.spawn("retention", built.dispatcher.clone().retain(every, stop.clone()));

    let (files, listening) = (built.files, built.dispatcher.clone());
    let (gate, issuers) = (files.gate.clone(), files.gate.clone());
    let every = settings.gate.reload_interval;
    delivery_tasks
        .spawn("files", files.watch(every, hung_up, stop.clone(), move || listening.terms_changed()));
    let stopped = stop.clone();
    delivery_tasks.spawn("keys", async move {
        tokio::select! {
            () = gate.keep_keys_fresh() => {}
            () = stopped.wait() => {}
        }
    });
    if let Some(events) = built.audit_events {
        delivery_tasks.spawn("audit events", events.store(built.storage.clone(), stop));
    }

    let (traffic, answers) = (built.traffic, built.traffic_answers);
    let (signals, stop) = (built.traffic_signals, traffic_tasks.stop());
    traffic_tasks.spawn("traffic", async move {
        if let Err(error) = traffic.serve(answers, clock, signals, stop).await {
            tracing::error!(%error, "the traffic port failed");
        }
    });
    // The admin port first: an operator who sees the instance ready may ask for anything.
    built.health.started();
    tokio::select! {
        fetched = tokio::time::timeout(KEYS_WITHIN, issuers.keys_fetched()) => {
            if fetched.is_err() {
                tracing::error!("ready without the keys of the issuer: its tokens are refused until they come");
            }
            if settings.gate.signature.is_some() {
                // What is signed in the second of the start is refused.
                tokio::time::sleep(to_next_second(clock)).await;
            }
            built.readiness.open();
            tracing::info!("ready");
            stopping.wait().await;
        }
        () = stopping.wait() => {}
    }
    tracing::info!("stopping: no new requests, what is under way is finished");
    let end = clock.elapsed() + bound;
    let left = || end.saturating_sub(clock.elapsed()).max(LEAST);
    built.readiness.close();
    built.polls_end.signal();
    let mut whole = traffic_tasks.shut_down(left()).await;
    whole &= built.stream_tasks.shut_down(left()).await;
    whole &= delivery_tasks.shut_down(left()).await;
    built.dispatcher.flush().await;
    let (storage, positions, audit_file) = (built.storage, built.positions, built.audit_file);
    let closed = tokio::task::spawn_blocking(move || {
        if let Some(file) = audit_file {
            file.stop();
        }
        storage.close();
        positions.close();
    });
    whole &= tokio::time::timeout(left(), closed).await.is_ok();
    whole &= admin_tasks.shut_down(left()).await;
    if whole {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped; something did not end within its time");
    }
    drop(built.data_dir);
    Ok(ExitCode::SUCCESS)
}

/// How long the present second still lasts, by the clock that signatures are dated by.
fn to_next_second(clock: Clock) -> Duration {
    Duration::from_millis(1_000 - clock.now().0 % 1_000)
}
