//! The copy of a dead letter that a replay appends, and who takes it.
//!
//! The copy carries [`REPLAY_GROUP`], which names one group by tenant, kind and name; every other group passes
//! over it as over an event its filters do not want. [`REPLAY_POSITION`] says of which event it is, so that a copy
//! whose making was interrupted is found in the log. Its lifetime starts anew with its acceptance.

use mesh_base::UnixMillis;
use mesh_frame::{Event, parse_timestamp};
use mesh_state::shared::{GroupId, ReplayedLetter};
use mesh_storage::LogRecord;

use crate::lane::Verdict;

/// The attribute that says for which group a copy is. Only the server sets it.
pub const REPLAY_GROUP: &str = "emreplaygroup";

/// The attribute that says of which event a copy is: `<incarnation>-<partition>-<offset>`, as the row of the dead
/// letter names it. Only the server sets it.
pub const REPLAY_POSITION: &str = "emdlposition";

/// The attribute that says which group of that name a copy is for: one that is made anew after it does not take it.
/// Only the server sets it.
const REPLAY_NUMBER: &str = "emdlgroupnumber";

/// The value of [`REPLAY_GROUP`] for a group: `tenant/kind/name`, in which `%` and `/` of the names are
/// percent-encoded, so that groups that differ have values that differ.
pub(crate) fn group_tag(id: &GroupId) -> String {
    let part = |text: &str| text.replace('%', "%25").replace('/', "%2F");
    format!("{}/{}/{}", part(id.tenant.as_str()), id.kind.as_str(), part(id.name.as_str()))
}

/// The value of [`REPLAY_POSITION`] for a letter.
pub(crate) fn position_tag(letter: ReplayedLetter) -> String {
    format!("{}-{}-{}", letter.incarnation.0, letter.partition.0, letter.offset.0)
}

/// A dead letter's body as it is appended again.
pub(crate) fn copy_for(body: &Event, group: &GroupId, number: u64, letter: ReplayedLetter) -> Event {
    let (tag, number, position) = (group_tag(group), number.to_string(), position_tag(letter));
    body.without_attributes(|name| name.starts_with("emdl")).with_attributes(&[
        (REPLAY_GROUP, &tag),
        (REPLAY_NUMBER, &number),
        (REPLAY_POSITION, &position),
    ])
}

/// What a replayed copy means for a group, by its id and number, apart from its filters; `None`: it is no copy.
pub(crate) fn replay_verdict(
    (group, number): (&GroupId, u64),
    record: &LogRecord,
    now: UnixMillis,
) -> Option<Verdict> {
    let stored = record.record();
    let of = stored.event.attribute(REPLAY_GROUP)?;
    // Copies of an older release do not say the number.
    let is_other = stored.event.attribute(REPLAY_NUMBER).is_some_and(|said| said != number.to_string());
    Some(if is_other || of != group_tag(group) {
        Verdict::Filtered
    } else if expires_at(&stored.event, stored.accepted_at_ms).is_some_and(|at| at <= now.0) {
        Verdict::Expired
    } else {
        Verdict::Deliver
    })
}

/// When a copy expires: `emttl` counts from its acceptance, whatever its `time`; an `expirytime` that had passed
/// when it was accepted is over with and no longer counts.
fn expires_at(event: &Event, accepted_at_ms: u64) -> Option<u64> {
    let lifetime = event.attribute("emttl").and_then(|lifetime| lifetime.parse::<u64>().ok());
    let lifetime_end = lifetime.map(|lifetime| accepted_at_ms.saturating_add(lifetime));
    let instant = event.attribute("expirytime").and_then(parse_timestamp);
    let instant = instant.and_then(|at| u64::try_from(at).ok()).filter(|at| *at > accepted_at_ms);
    match (lifetime_end, instant) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use mesh_frame::{
        EventBuilder, GroupName, Incarnation, Offset, PartitionId, Record, TenantId, TopicName,
    };
    use mesh_state::shared::GroupKind;

    use super::*;

    fn group(tenant: &str, kind: GroupKind, name: &str) -> GroupId {
        GroupId {
            tenant: TenantId::new(tenant).expect("legal"),
            topic: TopicName::new("t").expect("legal"),
            kind,
            name: GroupName::new(name).expect("legal"),
        }
    }

    #[test]
    fn groups_that_differ_have_tags_that_differ() {
        let ids = [
            group("a", GroupKind::LoadBalance, "b"),
            group("a", GroupKind::Broadcast, "b"),
            group("a/lb", GroupKind::LoadBalance, "b"),
            group("a", GroupKind::LoadBalance, "lb/b"),
            group("a%2Flb", GroupKind::LoadBalance, "b"),
            group("b", GroupKind::LoadBalance, "a"),
        ];
        let tags: std::collections::BTreeSet<String> = ids.iter().map(group_tag).collect();
        assert_eq!(tags.len(), ids.len(), "{tags:?}");
    }

    #[test]
    fn the_lifetime_of_a_copy_starts_with_its_acceptance() {
        // covers: U41
        let copy = |attributes: &[(&str, &str)]| {
            let event = EventBuilder::new("1", "/s", "t").build().expect("legal");
            let event =
                event.with_attributes(&[("emdlreason", "rejected"), ("time", "1970-01-01T00:00:01Z")]);
            let id = group("a", GroupKind::LoadBalance, "b");
            let letter = ReplayedLetter {
                incarnation: Incarnation(7),
                partition: PartitionId(1),
                offset: Offset(3),
                body_incarnation: Incarnation(8),
                body_offset: Offset(0),
            };
            let event = copy_for(&event.with_attributes(attributes), &id, 4, letter);
            assert_eq!(event.attribute("emdlreason"), None);
            assert_eq!(event.attribute(REPLAY_POSITION), Some("7-1-3"));
            LogRecord::new(Offset(0), Record { event, accepted_at_ms: 100_000 })
        };
        let id = group("a", GroupKind::LoadBalance, "b");
        let verdict =
            |attributes: &[(&str, &str)], now| replay_verdict((&id, 4), &copy(attributes), UnixMillis(now));
        assert_eq!(verdict(&[("emttl", "500")], 100_499), Some(Verdict::Deliver));
        assert_eq!(verdict(&[("emttl", "500")], 100_500), Some(Verdict::Expired));
        let past = ("expirytime", "1970-01-01T00:00:02Z");
        assert_eq!(verdict(&[past], u64::MAX), Some(Verdict::Deliver));
        let ahead = ("expirytime", "1970-01-01T00:01:41Z");
        assert_eq!(verdict(&[ahead, ("emttl", "9000")], 101_000), Some(Verdict::Expired));
        let other = group("a", GroupKind::Broadcast, "b");
        for other in [(&other, 4), (&id, 5)] {
            assert_eq!(replay_verdict(other, &copy(&[]), UnixMillis(0)), Some(Verdict::Filtered));
        }
    }
}
