//! The verdict on a recorded history: every rule holds, or the test ends with what broke.

use std::collections::BTreeMap;

use crate::{History, check};

impl History {
    /// Holds the whole record against every rule.
    ///
    /// # Panics
    /// When a rule is broken: with the rule, the events it concerns and everything recorded about them.
    pub fn must_hold(&self, about: &str) {
        let facts = self.facts();
        let violations = check(&facts);
        if !violations.is_empty() {
            // A few of each rule: the first broken one may have broken the others.
            let mut counts = BTreeMap::new();
            let mut shown = Vec::new();
            for violation in &violations {
                let count = counts.entry(violation.rule).or_insert(0);
                *count += 1;
                if *count <= 3 {
                    shown.push(violation.explain(&facts));
                }
            }
            // The whole record beside, for what concerns more than one event.
            let whole = std::env::temp_dir().join(format!("mesh-record-{}.txt", std::process::id()));
            let lines = facts.iter().enumerate().map(|(moment, fact)| format!("{moment}: {fact:?}\n"));
            let kept = std::fs::write(&whole, lines.collect::<String>());
            shown.push(format!("the whole record: {} ({kept:?})", whole.display()));
            panic!("{about}: {counts:?} in {} facts\n{}", facts.len(), shown.join("\n"));
        }
    }
}
