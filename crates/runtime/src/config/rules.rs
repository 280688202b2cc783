//! Rules between keys, and what is allowed but deserves a word.

use mesh_server::ClientCertificates;
use mesh_storage::SyncPolicy;

use super::{
    declared::Declared,
    keys::{admin, delivery, http, node, security, storage},
    problems::Warning,
    reader::Reader,
    settings::{GateSettings, MetaBackend, Settings, StorageBackend},
};

/// Checks the rules whose keys could all be read.
pub(crate) fn check(settings: &Settings, reader: &mut Reader, warnings: &mut Vec<Warning>) {
    owned_partitions_need_a_shared_meta(settings, reader);
    ports_differ(settings, reader);
    limits_fit_into_their_totals(settings, reader);
    closed_gate_has_something_to_check_against(settings, reader);
    tls_is_whole(settings, reader);
    addresses_have_a_store(settings, reader);
    warn(settings, reader, warnings);
}

fn owned_partitions_need_a_shared_meta(settings: &Settings, reader: &mut Reader) {
    if settings.delivery.topology.is_none()
        && settings.meta.backend == MetaBackend::Local
        && reader.is_sound(&node::meta::TYPE)
    {
        reader.forbid(
            &delivery::TOPOLOGY,
            "owned partitions need a Meta store that all instances share, and eventmesh.meta.type is local",
            Some(
                "LOCAL_STICKY_PULL with the Meta store `local` (shared ones, not in this build: etcd, nacos)",
            ),
        );
    }
}

fn ports_differ(settings: &Settings, reader: &mut Reader) {
    let port = settings.http.port;
    if port != 0 && port == settings.admin.port && sound(reader, &[&http::PORT, &admin::PORT]) {
        let (key, other): (&dyn Declared, &str) =
            if reader.is_given(&admin::PORT) || !reader.is_given(&http::PORT) {
                (&admin::PORT, "eventmesh.http.port")
            } else {
                (&http::PORT, "eventmesh.admin.port")
            };
        reader.forbid(
            key,
            format!("is the port of {other} too ({port})"),
            Some("two different ports; 0 means any free one"),
        );
    }
}

fn limits_fit_into_their_totals(settings: &Settings, reader: &mut Reader) {
    let (delivery, http) = (&settings.delivery, &settings.http);
    let rows: [&dyn Declared; 2] = [&delivery::MAX_OUTSTANDING, &delivery::MAX_OUTSTANDING_TOTAL];
    if delivery.max_outstanding > delivery.max_outstanding_total && sound(reader, &rows) {
        let wrong =
            format!("is above eventmesh.delivery.maxOutstandingTotal ({})", delivery.max_outstanding_total);
        reader.forbid(rows[0], wrong, None);
    }
    let bodies: [&dyn Declared; 2] = [&http::MAX_BODY, &http::MAX_IN_FLIGHT_BODIES];
    if http.max_body_bytes > http.max_in_flight_body_bytes && sound(reader, &bodies) {
        let total = super::kind::bytes_text(http.max_in_flight_body_bytes);
        reader.forbid(bodies[0], format!("is above eventmesh.http.maxInFlightBodyBytes ({total})"), None);
    }
    let answers: [&dyn Declared; 2] = [&http::MAX_BODY, &http::MAX_IN_FLIGHT_POLLS];
    if http.max_body_bytes > http.max_in_flight_poll_bytes && sound(reader, &answers) {
        let body = super::kind::bytes_text(http.max_body_bytes);
        let wrong = format!(
            "is below eventmesh.http.maxBodyBytes ({body}): an event that was accepted would hardly be sent"
        );
        reader.forbid(answers[1], wrong, None);
    }
}

fn closed_gate_has_something_to_check_against(settings: &Settings, reader: &mut Reader) {
    let gate = &settings.gate;
    if gate.fail_closed && !has_filter(gate) && FILTERS.iter().all(|key| reader.is_sound(*key)) {
        let wrong = "no filter is configured, so there is nothing to check against";
        reader.forbid(
            &security::FAIL_CLOSED,
            wrong,
            Some(
                "false; or true with tokens, signed tokens, client certificates, signatures or access rules",
            ),
        );
    }
}

/// Whether anything is configured that could object to a request.
fn has_filter(gate: &GateSettings) -> bool {
    let token = &gate.token;
    let jwt = &token.jwt;
    token.token_file.is_some()
        || token.certificate_file.is_some()
        || jwt.key_set_file.is_some()
        || jwt.key_set_url.is_some()
        || jwt.secret_file.is_some()
        || gate.signature.is_some()
        || gate.acl_file.is_some()
}

/// The keys that switch a filter on.
static FILTERS: [&dyn Declared; 7] = [
    &security::TOKEN_FILE,
    &security::CERTIFICATE_FILE,
    &security::jwt::KEY_SET_FILE,
    &security::jwt::KEY_SET_URL,
    &security::jwt::SECRET_FILE,
    &security::SIGNATURE_FILE,
    &security::ACL_FILE,
];

fn tls_is_whole(settings: &Settings, reader: &mut Reader) {
    use security::tls;
    let pair: [&dyn Declared; 2] = [&tls::CERTIFICATE, &tls::KEY];
    for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
        if reader.is_given(one) && !reader.is_given(other) && sound(reader, &pair) {
            reader.forbid(other, format!("is missing, and {} is there", one.about().name), None);
        }
    }
    let asks = reader.get(&tls::CLIENTS).is_some_and(|clients| clients != ClientCertificates::None);
    let admin_asks =
        reader.get(&tls::ADMIN_CLIENTS).is_some_and(|clients| clients != ClientCertificates::None);
    let is_asked =
        asks || admin_asks || reader.is_given(&tls::CLIENT_CA) || reader.is_given(&tls::ADMIN_CLIENT_CA);
    if settings.tls.is_none() && is_asked && sound(reader, &pair) {
        reader.forbid(&tls::CERTIFICATE, "is missing, and client certificates are asked for", None);
    } else if asks && !reader.is_given(&tls::CLIENT_CA) && reader.is_sound(&tls::CLIENT_CA) {
        reader.forbid(&tls::CLIENT_CA, "is missing: nothing says who signs client certificates", None);
    } else if admin_asks
        && settings.tls.as_ref().is_some_and(|tls| tls.admin_client_ca.is_none())
        && sound(reader, &[&tls::CLIENT_CA, &tls::ADMIN_CLIENT_CA])
    {
        let wrong = "is missing: nothing says who signs certificates of clients of the admin port";
        reader.forbid(&tls::ADMIN_CLIENT_CA, wrong, None);
    }
    if admin_asks && settings.tls.as_ref().is_some_and(|tls| !tls.admin) && sound(reader, &[&tls::ADMIN]) {
        reader.forbid(
            &tls::ADMIN_CLIENTS,
            "needs TLS on the admin port, and eventmesh.admin.tls is false",
            None,
        );
    }
    if !asks && reader.is_given(&security::CERTIFICATE_FILE) && sound(reader, &[&tls::CLIENTS]) {
        reader.forbid(
            &security::CERTIFICATE_FILE,
            "needs client certificates, and eventmesh.tls.client.auth asks for none",
            None,
        );
    }
}

fn addresses_have_a_store(settings: &Settings, reader: &mut Reader) {
    if settings.meta.backend == MetaBackend::Local && sound(reader, &[&node::meta::TYPE, &node::meta::ADDR]) {
        let wrong = "says where a shared Meta store is, and eventmesh.meta.type is local";
        if reader.is_given(&node::meta::ADDR) {
            reader.forbid(&node::meta::ADDR, wrong, Some("nothing: leave the key out"));
        }
    }
}

fn warn(settings: &Settings, reader: &Reader, warnings: &mut Vec<Warning>) {
    let mut add = |text: &str| warnings.push(Warning(text.to_owned()));
    match (settings.storage.backend, settings.storage.sync) {
        (StorageBackend::Memory, _) => {
            add("eventmesh.storage.type=memory: every event is lost when the process ends")
        }
        (StorageBackend::Embedded, SyncPolicy::Always) => {}
        (StorageBackend::Embedded, SyncPolicy::Interval) => {
            add("eventmesh.storage.embedded.sync=interval: power loss takes the events of the last second");
        }
        (StorageBackend::Embedded, SyncPolicy::Never) => {
            add(
                "eventmesh.storage.embedded.sync=never: power loss takes what the operating system had not written",
            );
        }
    }
    if reader.is_given(&storage::SYNC) && settings.storage.backend != StorageBackend::Embedded {
        add("eventmesh.storage.embedded.sync has no effect: the storage is not embedded");
    }
    let audit: [(&dyn Declared, bool, &str); 4] = [
        (&security::audit::FILE_RECORDS, settings.gate.audit.file.is_none(), "file"),
        (&security::audit::FILE_BYTES, settings.gate.audit.file.is_none(), "file"),
        (&security::audit::FILE_KEPT, settings.gate.audit.file.is_none(), "file"),
        (&security::audit::TOPIC_RECORDS, settings.gate.audit.topic.is_none(), "topic"),
    ];
    for (key, is_idle, what) in audit {
        if is_idle && reader.is_given(key) {
            add(&format!("{} has no effect: there is no audit {what}", key.about().name));
        }
    }
}

fn sound(reader: &Reader, keys: &[&dyn Declared]) -> bool {
    keys.iter().all(|key| reader.is_sound(*key))
}
