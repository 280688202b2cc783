//! `AclFilter`: who may do what to which resource, by rules from a file.
//!
//! The rule of the highest priority that matches decides; at equal priority one that cannot be read comes before
//! DENY, and DENY before ALLOW. Where no rule matches the answer is no. `*` matches everybody, callers without a
//! credential included. What an entry with mistakes may govern is denied ([`Finding::Malformed`]); a file that is
//! not TOML is refused, and at a reload the rules that were there hold.
//!
//! A decision looks at the rules of the resource, of each name above it and of `*`, there only at those of the
//! caller: it costs a few look-ups, whatever number of rules there are.

mod compiled;
mod file;
mod rule;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;

pub use self::compiled::RuleCount;
use self::{compiled::Compiled, rule::Effect};
use crate::{
    Action, Identity,
    filter::{Finding, LoadError, Reload},
    watched_file::WatchedFile,
};

/// Asks the rules.
#[derive(Debug)]
pub struct AclFilter {
    file: WatchedFile,
    rules: ArcSwap<Compiled>,
    revision: AtomicU64,
}

impl AclFilter {
    /// Reads the rules. Each mistake in an entry is a WARN.
    ///
    /// # Errors
    /// When the file cannot be read or is refused as a whole.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let file = WatchedFile::new(path);
        let rules = compile(path, &file.read()?)?;
        Ok(Self { file, rules: ArcSwap::from_pointee(rules), revision: AtomicU64::new(1) })
    }

    /// Whether an identity may do this to the resource of that name.
    pub fn judge(&self, identity: &Identity, action: Action, resource: &str) -> Finding {
        match self.rules.load().decide(identity, action, resource) {
            Some(Effect::Allow) => Finding::Pass(()),
            Some(Effect::Deny) | None => Finding::Deny("the rules do not permit this".into()),
            Some(Effect::Malformed) => Finding::Malformed("the rule about this cannot be read".into()),
        }
    }

    /// Grows with every change of the rules: what was judged under another number is judged again. Who keeps an
    /// answer asks for the number first and for the judgement then.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// How many rules hold.
    pub fn count(&self) -> RuleCount {
        self.rules.load().count()
    }

    /// Reads the file again if it changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; the rules there were hold.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        let Some(text) = self.file.read_if_changed()? else { return Ok(Reload::Unchanged) };
        self.rules.store(Arc::new(compile(self.file.path(), &text)?));
        self.revision.fetch_add(1, Ordering::AcqRel);
        Ok(Reload::Changed)
    }
}

fn compile(path: &Path, text: &str) -> Result<Compiled, LoadError> {
    let (rules, mistakes) = file::read(path, text)?;
    file::warn(path, &mistakes);
    if rules.is_empty() {
        tracing::warn!(file = %path.display(), "there are no access rules: nothing is permitted");
    }
    Ok(Compiled::new(rules))
}

#[cfg(test)]
mod tests;
