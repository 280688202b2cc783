//! From pairs to settings: pure, and thorough. Every key is read, every rule between keys is checked, and
//! whatever is wrong is reported together.

use mesh_gate::{JwtSettings, TenantLimits, TokenSettings};

use super::{
    keys::{admin, delivery, http, node, security, storage},
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
    let Looked { settings, warnings, problems } = look(given, mode);
    if problems.is_empty() { Ok((settings, warnings)) } else { Err(problems) }
}

/// What there is to say of a configuration, whatever is wrong with it.
#[derive(Debug)]
pub struct Looked {
    /// The settings. What could not be read stands in as its default: nothing may be started with it.
    pub settings: Settings,
    /// What a person should know.
    pub warnings: Vec<Warning>,
    /// What stops a start.
    pub problems: Vec<Problem>,
}

/// Reads what can be read.
pub fn look(given: Given, mode: Mode) -> Looked {
    let resolved = resolve(given.pairs);
    let mut problems = given.problems;
    let effective = resolved.effective(mode);
    problems.extend(resolved.problems);
    let mut reader = Reader::new(resolved.given, mode);
    let mut settings = read(&mut reader, mode);
    let mut warnings = resolved.warnings;
    rules::check(&settings, &mut reader, &mut warnings);
    problems.extend(reader.into_problems());
    settings.effective = effective;
    Looked { settings, warnings, problems }
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
            idle_timeout: Some(reader.required(&delivery::IDLE_TIMEOUT)).filter(|timeout| !timeout.is_zero()),
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
            hosts: reader.get(&http::HOSTS).unwrap_or_default(),
            max_body_bytes: reader.required(&http::MAX_BODY),
            header_timeout: reader.required(&http::HEADER_TIMEOUT),
            body_timeout: reader.required(&http::BODY_TIMEOUT),
            idle_timeout: reader.required(&http::IDLE_TIMEOUT),
            max_connections: reader.required(&http::MAX_CONNECTIONS),
            max_in_flight_body_bytes: reader.required(&http::MAX_IN_FLIGHT_BODIES),
            max_in_flight_poll_bytes: reader.required(&http::MAX_IN_FLIGHT_POLLS),
            cors_origins: reader.get(&security::CORS_ORIGINS).unwrap_or_default(),
        },
        admin: AdminSettings {
            host: reader.required(&admin::HOST),
            port: reader.required(&admin::PORT),
            token: reader.get(&admin::TOKEN),
            token_file: reader.get(&admin::TOKEN_FILE),
            metrics_token: reader.get(&admin::METRICS_TOKEN),
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
        gate: gate(reader),
        tls: tls(reader),
        log: LogSettings {
            format: reader.required(&node::log::FORMAT),
            level: reader.required(&node::log::LEVEL),
        },
        effective: Vec::new(),
    }
}

fn gate(reader: &mut Reader) -> GateSettings {
    use security::{audit, jwt, quota};
    let signature_file = reader.get(&security::SIGNATURE_FILE);
    let signature = SignatureSettings {
        file: signature_file.clone().unwrap_or_default(),
        legacy: reader.required(&security::SIGNATURE_LEGACY),
        window: reader.required(&security::SIGNATURE_WINDOW),
        max_nonces: reader.required(&security::SIGNATURE_NONCES),
    };
    GateSettings {
        fail_closed: reader.required(&security::FAIL_CLOSED),
        token: TokenSettings {
            token_file: reader.get(&security::TOKEN_FILE),
            certificate_file: reader.get(&security::CERTIFICATE_FILE),
            jwt: JwtSettings {
                key_set_file: reader.get(&jwt::KEY_SET_FILE),
                key_set_url: reader.get(&jwt::KEY_SET_URL),
                refresh_interval: reader.required(&jwt::REFRESH),
                max_stale: reader.required(&jwt::MAX_STALE),
                secret_file: reader.get(&jwt::SECRET_FILE),
                algorithms: reader.get(&jwt::ALGORITHMS).unwrap_or_default(),
                issuer: reader.get(&jwt::ISSUER),
                audience: reader.get(&jwt::AUDIENCE).unwrap_or_default(),
                leeway: reader.required(&jwt::LEEWAY),
                tenant_claim: reader.required(&jwt::TENANT_CLAIM),
                default_tenant: reader.get(&jwt::TENANT),
                principal_claim: reader.required(&jwt::PRINCIPAL_CLAIM),
                roles_claim: reader.required(&jwt::ROLES_CLAIM),
            },
        },
        key_set_ca: reader.get(&jwt::KEY_SET_CA),
        acl_file: reader.get(&security::ACL_FILE),
        signature: signature_file.is_some().then_some(signature),
        limits: TenantLimits {
            connections: reader.get(&quota::CONNECTIONS),
            subscriptions: reader.get(&quota::SUBSCRIPTIONS),
            events_per_second: reader.get(&quota::EVENTS),
            bytes_per_second: reader.get(&quota::BYTES),
            backlog: reader.get(&quota::BACKLOG),
        },
        limits_file: reader.get(&quota::FILE),
        audit: AuditSettings {
            file: reader.get(&audit::FILE),
            file_records: reader.required(&audit::FILE_RECORDS),
            file_bytes: reader.required(&audit::FILE_BYTES),
            file_kept: reader.required(&audit::FILE_KEPT),
            topic: reader.get(&audit::TOPIC),
            topic_records: reader.required(&audit::TOPIC_RECORDS),
        },
        reload_interval: reader.required(&security::RELOAD),
    }
}

fn tls(reader: &mut Reader) -> Option<TlsFiles> {
    use security::tls;
    let (certificate, key) = (reader.get(&tls::CERTIFICATE), reader.get(&tls::KEY));
    let client_ca = reader.get(&tls::CLIENT_CA);
    let (clients, admin) = (reader.required(&tls::CLIENTS), reader.required(&tls::ADMIN));
    let admin_clients = reader.required(&tls::ADMIN_CLIENTS);
    let admin_client_ca = reader.get(&tls::ADMIN_CLIENT_CA).or_else(|| client_ca.clone());
    // What is missing of the two, a rule says.
    Some(TlsFiles {
        certificate: certificate?,
        key: key?,
        client_ca,
        clients,
        admin,
        admin_client_ca,
        admin_clients,
    })
}

#[cfg(test)]
mod tests;
