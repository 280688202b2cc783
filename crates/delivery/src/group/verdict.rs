//! Whether a group wants a record.

use mesh_base::UnixMillis;
use mesh_state::shared::GroupId;
use mesh_storage::LogRecord;

use super::{replay_copy::replay_verdict, settings::Settings};
use crate::lane::Verdict;

/// Whether a group wants a record now.
pub(crate) fn verdict(
    group: (&GroupId, u64),
    settings: &Settings,
    record: &LogRecord,
    now: UnixMillis,
) -> Verdict {
    let stored = record.record();
    let wanted = || settings.filters.iter().all(|filter| filter.matches(&stored.event));
    if let Some(verdict) = replay_verdict(group, record, now) {
        if verdict == Verdict::Deliver && !wanted() { Verdict::Filtered } else { verdict }
    } else if stored.event.expires_at_ms(stored.accepted_at_ms).is_some_and(|at| at <= now.0) {
        Verdict::Expired
    } else if wanted() {
        Verdict::Deliver
    } else {
        Verdict::Filtered
    }
}
