//! From pairs to settings: pure, and thorough. Every key is read, every rule between keys is checked, and
//! whatever is wrong is reported together.

use super::{
    effective,
    keys::{admin, delivery, http, node, storage},
    mode::Mode,
    problems::{Problem, Warning},
    reader::Reader,
    resolve::resolve,
    rules,
    settings::*,
    sources::Given,
};

/// Reads all settings.
///
/// # Errors
///
/// Every problem there is; then nothing may be started.
pub fn validate(given: Given, mode: Mode) -> Result<(Settings, Vec<Warning>), Vec<Problem>> {
    let resolved = resolve(given.pairs);
    let mut problems = given.problems;
    problems.extend(resolved.problems);
    let effective = effective::list(&resolved.given, mode);
    let mut reader = Reader::new(resolved.given, mode);
    let mut settings = read(&mut reader, mode);
    let mut warnings = resolved.warnings;
    rules::check(&settings, &mut reader, &mut warnings);
    problems.extend(reader.into_problems());
    if problems.is_empty() {
        settings.effective = effective;
        Ok((settings, warnings))
    } else {
        Err(problems)
    }
}

/// One line a key; what cannot be read has become a problem and stands in as its default.
fn read(reader: &mut Reader, mode: Mode) -> Settings {
    // Only `server` without a storage takes the stand-in, and that is a problem already.
    let backend = reader.get(&storage::TYPE).unwrap_or(StorageBackend::Embedded);
    let data_dir = reader.required(&storage::DATA_DIR);
    Settings {
        mode,
        delivery: DeliverySettings {
            topology: reader.required(&delivery::TOPOLOGY),
            max_outstanding: reader.required(&delivery::MAX_OUTSTANDING),
            max_outstanding_total: reader.required(&delivery::MAX_OUTSTANDING_TOTAL),
            max_subscriptions_per_client: reader.required(&delivery::PER_CLIENT),
        },
        storage: StorageSettings {
            backend,
            sync: reader.required(&storage::SYNC),
            partitions: u32::try_from(reader.required(&storage::PARTITIONS)).unwrap_or(u32::MAX),
            retention_max_age: reader.required(&storage::RETENTION_MAX_AGE),
            retention_max_bytes: reader.get(&storage::RETENTION_MAX_BYTES),
            retention_interval: reader.required(&storage::RETENTION_INTERVAL),
            backlog_max_age: Some(reader.required(&storage::BACKLOG_MAX_AGE)).filter(|age| !age.is_zero()),
            backlog_max_bytes: reader.get(&storage::BACKLOG_MAX_BYTES),
            low_watermark_bytes: reader.get(&storage::LOW_WATERMARK),
            tail_cache_bytes: reader.required(&storage::TAIL_CACHE),
            offset_path: reader.get(&storage::OFFSET_PATH).unwrap_or_else(|| data_dir.join("offset")),
            data_dir,
        },
        topics: TopicSettings {
            auto_create: reader.required(&storage::topics::AUTO_CREATE),
            max_topics: reader.required(&storage::topics::MAX_TOPICS),
            publish_timeout: reader.required(&storage::topics::PUBLISH_TIMEOUT),
            dedup_window: Some(reader.required(&storage::topics::DEDUP_WINDOW))
                .filter(|window| !window.is_zero()),
            dedup_max_events: reader.required(&storage::topics::DEDUP_MAX),
            java_compatible: reader.required(&storage::topics::JAVA_COMPATIBLE),
        },
        http: HttpSettings {
            host: reader.required(&http::HOST),
            port: reader.required(&http::PORT),
            advertised_url: reader.get(&http::ADVERTISED_ADDR),
            max_body_bytes: reader.required(&http::MAX_BODY),
            header_timeout: reader.required(&http::HEADER_TIMEOUT),
            body_timeout: reader.required(&http::BODY_TIMEOUT),
            idle_timeout: reader.required(&http::IDLE_TIMEOUT),
            max_connections: reader.required(&http::MAX_CONNECTIONS),
            max_in_flight_body_bytes: reader.required(&http::MAX_IN_FLIGHT_BODIES),
            max_in_flight_poll_bytes: reader.required(&http::MAX_IN_FLIGHT_POLLS),
        },
        admin: AdminSettings {
            host: reader.required(&admin::HOST),
            port: reader.required(&admin::PORT),
            token: reader.get(&admin::TOKEN),
        },
        meta: MetaSettings {
            backend: reader.required(&node::meta::TYPE),
            addresses: reader.get(&node::meta::ADDR).unwrap_or_default(),
        },
        instance: InstanceSettings {
            id: reader.get(&node::INSTANCE_ID),
            tenant_default: reader.required(&node::TENANT_DEFAULT),
            shutdown_timeout: reader.required(&node::SHUTDOWN_TIMEOUT),
        },
        gate: GateSettings { fail_closed: reader.required(&node::security::FAIL_CLOSED) },
        log: LogSettings {
            format: reader.required(&node::log::FORMAT),
            level: reader.required(&node::log::LEVEL),
        },
        effective: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
