//! What tenants may use: one set for all, and sets of their own for some.

use std::{collections::HashMap, path::Path, sync::Arc};

use arc_swap::ArcSwap;
use mesh_frame::TenantId;

use crate::{
    filter::{LoadError, Reload},
    toml_text::{TomlText, integer},
    watched_file::WatchedFile,
};

/// What a tenant may use; `None`: as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Open connections to one instance.
    pub connections: Option<u64>,
    /// Subscriptions.
    pub subscriptions: Option<u64>,
    /// Events published a second, to one instance.
    pub events_per_second: Option<u64>,
    /// Bytes published a second, to one instance.
    pub bytes_per_second: Option<u64>,
    /// Deliveries handed out and not finished.
    pub backlog: Option<u64>,
}

impl TenantLimits {
    /// The limit of that name, as files and settings have it.
    fn named(&mut self, name: &str) -> Option<&mut Option<u64>> {
        match name {
            "connections" => Some(&mut self.connections),
            "subscriptions" => Some(&mut self.subscriptions),
            "eventsPerSecond" => Some(&mut self.events_per_second),
            "bytesPerSecond" => Some(&mut self.bytes_per_second),
            "backlog" => Some(&mut self.backlog),
            _ => None,
        }
    }
}

/// The limits of tenants that have their own, from a file that is read again when it changes.
#[derive(Debug)]
pub struct TenantLimitsFile {
    file: WatchedFile,
    own: ArcSwap<HashMap<TenantId, TenantLimits>>,
}

impl TenantLimitsFile {
    /// Reads the file: TOML, `[[tenant]]` with `name` and any of the limits by the names of their settings. What
    /// an entry leaves out is as for every tenant.
    ///
    /// # Errors
    /// When it cannot be read or has something that is not understood.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let file = WatchedFile::new(path);
        let own = read(path, &file.read()?)?;
        Ok(Self { file, own: ArcSwap::from_pointee(own) })
    }

    /// The limits of a tenant: its own where it has some, else `general`.
    pub fn of(&self, tenant: &TenantId, general: &TenantLimits) -> TenantLimits {
        let Some(own) = self.own.load().get(tenant).copied() else { return *general };
        TenantLimits {
            connections: own.connections.or(general.connections),
            subscriptions: own.subscriptions.or(general.subscriptions),
            events_per_second: own.events_per_second.or(general.events_per_second),
            bytes_per_second: own.bytes_per_second.or(general.bytes_per_second),
            backlog: own.backlog.or(general.backlog),
        }
    }

    /// Reads the file again if it changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; what was there holds.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        let Some(text) = self.file.read_if_changed()? else { return Ok(Reload::Unchanged) };
        self.own.store(Arc::new(read(self.file.path(), &text)?));
        Ok(Reload::Changed)
    }
}

fn read(path: &Path, text: &str) -> Result<HashMap<TenantId, TenantLimits>, LoadError> {
    let text = TomlText::new(path, text);
    let document = text.parse()?;
    let mut all = HashMap::new();
    for (at, entry) in text.entries(&document, "tenant")? {
        let (mut tenant, mut limits) = (None, TenantLimits::default());
        // The members in their order, so that the first mistake is the one that is told.
        let mut members: Vec<_> = entry.iter().collect();
        members.sort_unstable_by_key(|(key, _)| key.span().start);
        for (key, value) in members {
            let (name, at) = (&**key.get_ref(), value.span().start);
            let refused = |wanted: &str| {
                text.unusable(at, format!("`{name}` is {}, which is not {wanted}", text.shown(value)))
            };
            if name == "name" {
                let given = value.get_ref().as_str().and_then(|name| TenantId::new(name).ok());
                tenant = Some(given.ok_or_else(|| refused("the name of a tenant"))?);
                continue;
            }
            let Some(limit) = limits.named(name) else {
                return Err(text.unusable(key.span().start, format!("`{name}` is not known here")));
            };
            let given = integer(value.get_ref()).and_then(|given| u64::try_from(given).ok());
            let given = given.filter(|given| *given > 0);
            *limit = Some(given.ok_or_else(|| refused("an integer from 1 on"))?);
        }
        let tenant = tenant.ok_or_else(|| text.unusable(at, "`name` is missing".to_owned()))?;
        if let Some(_twice) = all.insert(tenant.clone(), limits) {
            return Err(text.unusable(at, format!("the tenant `{tenant}` stands here for the second time")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("legal")
    }

    #[test]
    fn a_tenant_has_its_own_limits_where_it_has_some_and_they_change_with_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tenants.toml");
        fs::write(&path, "[[tenant]]\nname = \"a\"\nconnections = 7\nbytesPerSecond = 0x10\n")
            .expect("written");
        let file = TenantLimitsFile::load(&path).expect("good");
        let general = TenantLimits { connections: Some(1), backlog: Some(2), ..TenantLimits::default() };
        let own = TenantLimits { connections: Some(7), bytes_per_second: Some(16), ..general };
        assert_eq!((file.of(&tenant("a"), &general), file.of(&tenant("b"), &general)), (own, general));
        assert_eq!(file.reload().expect("the same"), Reload::Unchanged);

        fs::write(&path, "[[tenant]]\nname = \"a\"\nconnections = -1").expect("written");
        assert!(file.reload().is_err());
        assert_eq!(file.of(&tenant("a"), &general), own);

        let all = "[[tenant]]\nname = \"b\"\nconnections = 1\nsubscriptions = 2\neventsPerSecond = 3\n\
                   bytesPerSecond = 4\nbacklog = 5\n";
        fs::write(&path, all).expect("written");
        assert_eq!(file.reload().expect("good"), Reload::Changed);
        let own = TenantLimits {
            connections: Some(1),
            subscriptions: Some(2),
            events_per_second: Some(3),
            bytes_per_second: Some(4),
            backlog: Some(5),
        };
        assert_eq!((file.of(&tenant("a"), &general), file.of(&tenant("b"), &general)), (general, own));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        // covers: U119
        let cases = [
            ("connections = 0", ":3: `connections` is 0, which is not an integer from 1 on"),
            ("backlog = 1e3", ":3: `backlog` is 1e3, which is not an integer from 1 on"),
            ("eventsPerSecond = \"9\"", ":3: `eventsPerSecond` is \"9\", which is not"),
            ("bytesPerSecond = 99999999999999999999", ":3: `bytesPerSecond` is 9999"),
            ("conections = 1", ":3: `conections` is not known here"),
            ("[[tenant]]", ":3: `name` is missing"),
            ("[[tenant]]\nname = \"a\"", ":3: the tenant `a` stands here for the second time"),
            ("[[tenant]]\nname = \"\"", ":4: `name` is \"\", which is not the name of a tenant"),
            ("[[tenants]]", ":3: `tenants` is not known here"),
            ("?", ":3: it is not TOML"),
        ];
        for (wrong, message) in cases {
            let text = format!("[[tenant]]\nname = \"a\"\n{wrong}\n");
            let error = read(Path::new("tenants.toml"), &text).expect_err(wrong).to_string();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
