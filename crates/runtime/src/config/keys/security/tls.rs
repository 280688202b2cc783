//! Keys of TLS.

use mesh_server::ClientCertificates;

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Choice, File, Switch, Word},
};

/// This group.
pub const GROUP: Group = Group {
    title: "TLS",
    about: "With a certificate the traffic port speaks TLS (1.2 and 1.3) and nothing else. The files are read again \
            when they change, without a restart.",
};

const CLIENT_CERTIFICATES: Choice<ClientCertificates> = Choice {
    options: &[
        Word { word: "none", value: ClientCertificates::None, meaning: "clients are not asked." },
        Word {
            word: "optional",
            value: ClientCertificates::Optional,
            meaning: "clients are asked, and may have none; one that does not hold ends the connection.",
        },
        Word {
            word: "required",
            value: ClientCertificates::Required,
            meaning: "without a certificate that holds there is no connection.",
        },
    ],
    not_in_this_build: &[],
};

keys! {
    CERTIFICATE: File = File,
    "eventmesh.tls.certificate.file", Fallback::Unset("no TLS"),
    "The server's certificate and what leads to its root, PEM.", never_blank;

    KEY: File = File,
    "eventmesh.tls.key.file", Fallback::Unset("no TLS"),
    "The certificate's private key, PEM.", never_blank;

    CLIENT_CA: File = File,
    "eventmesh.tls.client.ca.file", Fallback::Unset("client certificates are not asked for"),
    "Who signs client certificates, PEM.", never_blank;

    CLIENTS: Choice<ClientCertificates> = CLIENT_CERTIFICATES,
    "eventmesh.tls.client.auth", Fallback::Value("none"),
    "Whether clients of the traffic port show certificates (mTLS).";

    ADMIN: Switch = Switch,
    "eventmesh.admin.tls", Fallback::Value("true"),
    "Whether the admin port speaks TLS too when there is a certificate.";

    ADMIN_CLIENTS: Choice<ClientCertificates> = CLIENT_CERTIFICATES,
    "eventmesh.admin.tls.client.auth", Fallback::Value("none"),
    "Whether clients of the admin port show certificates. A certificate is asked beside the token and says nothing of \
     who somebody is; with `required` probes of health and readiness need one too.";

    ADMIN_CLIENT_CA: File = File,
    "eventmesh.admin.tls.client.ca.file", Fallback::Unset("`eventmesh.tls.client.ca.file`"),
    "Who signs the certificates of clients of the admin port, PEM.", never_blank;
}
