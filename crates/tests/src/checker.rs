//! The rules that every history must keep, whatever was killed, full or slow.
//!
//! The checker claims nothing that the record cannot show: an answer that was lost may mean either, an ack whose
//! answer was lost may have counted. Each rule has a module; the tests hold hand-made histories against each.

mod cursors;
mod dead;
mod dedup;
mod deletions;
mod drops;
mod ends;
mod index;
mod nacks;
mod operations;
mod order;
mod place;
mod positions;
#[cfg(test)]
mod tests;
mod violation;

use crate::Fact;
use index::Index;
pub use violation::{Rule, Violation};

/// Every rule that the record breaks.
pub fn check(facts: &[Fact]) -> Vec<Violation> {
    let index = Index::new(facts);
    let mut violations = Vec::new();
    ends::check(&index, &mut violations);
    dead::check(facts, &index, &mut violations);
    dead::misdelivered(facts, &mut violations);
    dead::copied_twice(facts, &index, &mut violations);
    order::check(facts, &index, &mut violations);
    cursors::check(facts, &index, &mut violations);
    positions::check(facts, &index, &mut violations);
    nacks::check(&index, &mut violations);
    dedup::check(&index, &mut violations);
    deletions::check(&index, &mut violations);
    drops::check(facts, &index, &mut violations);
    violations
}
