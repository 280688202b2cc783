//! What would stop a start although every key can be read: files that are not there or cannot be used, a data directory
//! that is none. Looks only: nothing is made, written or locked, so that a server may run meanwhile.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use mesh_gate::{
    AclFilter, JwtSettings, LoadError, SignatureSettings, SignatureVerifierFilter, TenantLimitsFile,
    TokenAuthFilter, TokenSettings,
};
use rustix::fs::{Access, access};

use super::{data_dir, gate, key_fetcher::HttpsKeyFetcher};
use crate::config::{Problem, Settings, keys};

/// Every problem at once.
pub fn check(settings: &Settings) -> Vec<Problem> {
    let mut found = Found { settings, problems: Vec::new() };
    found.credentials();
    found.gate_files();
    found.ports();
    found.data();
    found.problems
}

struct Found<'a> {
    settings: &'a Settings,
    problems: Vec<Problem>,
}

impl Found<'_> {
    fn add(&mut self, key: &str, wrong: String) {
        let effective = self.settings.effective().iter().find(|effective| effective.key == key);
        self.problems.push(Problem {
            key: key.to_owned(),
            value: effective.and_then(|effective| effective.value.clone()),
            origin: effective.map(|effective| effective.origin.clone()),
            wrong,
            accepted: None,
            nearest: None,
        });
    }

    fn load<T>(&mut self, key: &str, loaded: Result<T, LoadError>) {
        if let Err(error) = loaded {
            self.add(key, told(&error));
        }
    }

    /// One file at a time: what is wrong with one hides nothing of another.
    fn credentials(&mut self) {
        use keys::security::{CERTIFICATE_FILE, TOKEN_FILE, jwt};
        let asked = &self.settings.gate.token;
        let (none, jwt) = (TokenSettings::default(), asked.jwt.clone());
        let alone = |jwt: JwtSettings| TokenSettings { jwt, ..TokenSettings::default() };
        let parts = [
            (
                TOKEN_FILE.about.name,
                asked.token_file.is_some(),
                TokenSettings { token_file: asked.token_file.clone(), ..none.clone() },
            ),
            (
                CERTIFICATE_FILE.about.name,
                asked.certificate_file.is_some(),
                TokenSettings { certificate_file: asked.certificate_file.clone(), ..none },
            ),
            (
                jwt::KEY_SET_FILE.about.name,
                jwt.key_set_file.is_some(),
                alone(JwtSettings { secret_file: None, key_set_url: None, ..jwt.clone() }),
            ),
            (
                jwt::SECRET_FILE.about.name,
                jwt.secret_file.is_some(),
                alone(JwtSettings { key_set_file: None, key_set_url: None, ..jwt }),
            ),
        ];
        for (key, is_asked, settings) in parts {
            if is_asked {
                self.load(key, TokenAuthFilter::load_with(&settings, None).map(drop));
            }
        }
        if self.settings.gate.token.jwt.key_set_url.is_some() {
            let fetcher = HttpsKeyFetcher::new(self.settings.gate.key_set_ca.as_deref());
            self.load(jwt::KEY_SET_CA.about.name, fetcher);
        }
    }

    fn gate_files(&mut self) {
        use keys::{
            admin,
            security::{ACL_FILE, SIGNATURE_FILE, audit, quota},
        };
        let asked = &self.settings.gate;
        if let Some(signature) = &asked.signature {
            let settings = SignatureSettings {
                legacy: signature.legacy,
                ..SignatureSettings::new(signature.file.clone())
            };
            self.load(SIGNATURE_FILE.about.name, SignatureVerifierFilter::load(&settings));
        }
        if let Some(file) = &asked.acl_file {
            self.load(ACL_FILE.about.name, AclFilter::load(file));
        }
        if let Some(file) = &asked.limits_file {
            self.load(quota::FILE.about.name, TenantLimitsFile::load(file));
        }
        if let Err(error) = gate::admin_access(self.settings, None) {
            self.add(admin::TOKEN_FILE.about.name, format!("{error:#}"));
        }
        if let Some(Err(wrong)) = asked.audit.file.as_deref().map(can_be_appended_to) {
            self.add(audit::FILE.about.name, wrong);
        }
    }

    fn ports(&mut self) {
        if let Err(error) = gate::tls(self.settings) {
            self.add(keys::security::tls::CERTIFICATE.about.name, format!("{error:#}"));
        }
    }

    fn data(&mut self) {
        use keys::storage::{DATA_DIR, OFFSET_PATH};
        let storage = &self.settings.storage;
        if let Err(wrong) = can_be_a_folder(&storage.data_dir) {
            self.add(DATA_DIR.about.name, wrong);
        } else if let Err(error) = data_dir::look(&storage.data_dir, &self.settings.files()) {
            self.add(DATA_DIR.about.name, format!("{error:#}"));
        }
        if !storage.offset_path.starts_with(&storage.data_dir)
            && let Err(wrong) = can_be_a_folder(&storage.offset_path)
        {
            self.add(OFFSET_PATH.about.name, wrong);
        }
    }
}

fn told(error: &LoadError) -> String {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{error}{cause}")
}

/// Whether a file can be written at its end, or made.
fn can_be_appended_to(file: &Path) -> Result<(), String> {
    match fs::metadata(file) {
        Ok(about) if !about.is_file() => Err("is no file".to_owned()),
        Ok(_) => OpenOptions::new()
            .append(true)
            .open(file)
            .map(drop)
            .map_err(|error| format!("cannot be written: {error}")),
        Err(_) => {
            let folder =
                file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !folder.is_dir() {
                return Err(format!("cannot be made: there is no folder {}", folder.display()));
            }
            may_write(folder)
        }
    }
}

/// Whether a folder is there and can be written, or can be made.
fn can_be_a_folder(path: &Path) -> Result<(), String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    if !there.is_dir() {
        return Err(format!("cannot be made: {} is no folder", there.display()));
    }
    may_write(there)
}

fn may_write(folder: &Path) -> Result<(), String> {
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("{} cannot be written: {error}", folder.display()))
}
