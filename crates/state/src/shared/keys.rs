//! The key layout of the shared records.
//!
//! | key | record |
//! | --- | --- |
//! | `/em/subs/<tenant>/<topic>/<kind>/<group>/<client>` | a membership |
//! | `/em/groups/<tenant>/<topic>/<kind>/<group>` | a group |
//! | `/em/dlq/<tenant>/<topic>/<kind>/<group>/[<instance>/]<incarnation>-<partition>-<offset>` | a dead letter |
//! | `/em/replays/<instance>` | what replays of an instance are about to copy |
//! | `/em/tasks/<task>` | a task |
//! | `/em/ratelimit/rules` | the rates of topics |
//! | `/em/cluster/key` | the key of delivery ids |
//! | `/em/boots/<instance>` | how often an instance has started |
//! | `/em/group-numbers/<number>` | whose a group number is; 16 hexadecimal digits |
//! | `/em/agents/<agent>`, `/em/bindings/<client>`, `/em/sessions/<session>` | sessions |
//!
//! Every part is text with all bytes but `[A-Za-z0-9._-]` as `%XX`: any legal name round-trips, none holds
//! the separator, and names that differ have keys that differ. Only that one spelling is read. The numbers of
//! a dead letter have a fixed width, so that keys sort by offset.

use mesh_frame::{ClientId, GroupName, Incarnation, InstanceId, Offset, PartitionId, TenantId, TopicName};

use super::{DeadLetterId, GroupId, GroupKind};

/// Where memberships are.
pub(crate) const SUBSCRIPTIONS: &str = "/em/subs/";
/// Where groups are.
pub(crate) const GROUPS: &str = "/em/groups/";
/// Where dead letters are.
pub(crate) const DEAD_LETTERS: &str = "/em/dlq/";
/// Where the intents of replays are.
pub(crate) const REPLAYS: &str = "/em/replays/";
/// Where tasks are.
pub(crate) const TASKS: &str = "/em/tasks/";
/// Where the rates of topics are.
pub(crate) const RATE_LIMITS: &str = "/em/ratelimit/rules";
/// Where agents are.
pub(crate) const AGENTS: &str = "/em/agents/";
/// Where bindings are.
pub(crate) const BINDINGS: &str = "/em/bindings/";
/// Where sessions are.
pub(crate) const SESSIONS: &str = "/em/sessions/";

/// Where the key of delivery ids is.
pub(crate) const CLUSTER_KEY: &str = "/em/cluster/key";
/// Where the counts of boots are.
pub(crate) const BOOTS: &str = "/em/boots/";
/// Where the numbers of groups are reserved.
pub(crate) const GROUP_NUMBERS: &str = "/em/group-numbers/";

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Text as a part of a key. The text must not be empty; no name is.
pub(crate) fn encode_part(text: &str) -> String {
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') {
            part.push(char::from(byte));
        } else {
            part.push('%');
            part.push(char::from(HEX[usize::from(byte >> 4)]));
            part.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    part
}

/// The text of a part; `None` when [`encode_part`] would not have written it so.
pub(crate) fn decode_part(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            rest = tail;
            let digit = |at: usize| HEX.iter().position(|hex| *hex == digits[at]);
            bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        } else {
            bytes.push(first);
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && encode_part(&text) == part).then_some(text)
}

fn join(root: &str, parts: &[&str]) -> String {
    let encoded: Vec<String> = parts.iter().map(|part| encode_part(part)).collect();
    format!("{root}{}", encoded.join("/"))
}

/// The parts of a key below `root`; `None` when one of them is not a part.
fn split(root: &str, key: &str) -> Option<Vec<String>> {
    key.strip_prefix(root)?.split('/').map(decode_part).collect()
}

/// The key of a record with a single name.
pub(crate) fn single(root: &str, name: &str) -> String {
    join(root, &[name])
}

/// The name in a key of [`single`].
pub(crate) fn read_single(root: &str, key: &str) -> Option<String> {
    let [name] = <[String; 1]>::try_from(split(root, key)?).ok()?;
    Some(name)
}

/// The key of a group.
pub(crate) fn group(id: &GroupId) -> String {
    under(GROUPS, id)
}

/// The group of a key.
pub(crate) fn read_group(key: &str) -> Option<GroupId> {
    let parts = split(GROUPS, key)?;
    (parts.len() == 4).then(|| group_of(&parts))?
}

/// The key of the reservation of a group number.
pub(crate) fn group_number(number: u64) -> String {
    format!("{GROUP_NUMBERS}{number:016x}")
}

/// The group number of a key of [`group_number`].
pub(crate) fn read_group_number(key: &str) -> Option<u64> {
    let number = u64::from_str_radix(key.strip_prefix(GROUP_NUMBERS)?, 16).ok()?;
    (group_number(number) == key).then_some(number)
}

/// The key of a membership.
pub(crate) fn subscription(id: &GroupId, client: &ClientId) -> String {
    format!("{}{}", members(id), encode_part(client.as_str()))
}

/// What the keys of all members of a group start with.
pub(crate) fn members(id: &GroupId) -> String {
    format!("{}/", under(SUBSCRIPTIONS, id))
}

/// The group and the client of a key.
pub(crate) fn read_subscription(key: &str) -> Option<(GroupId, ClientId)> {
    let parts = split(SUBSCRIPTIONS, key)?;
    let (client, group) = parts.split_last().filter(|(_, group)| group.len() == 4)?;
    Some((group_of(group)?, ClientId::new(client).ok()?))
}

/// The key of a dead letter.
pub(crate) fn dead_letter(id: &DeadLetterId) -> String {
    let instance = match &id.instance {
        Some(instance) => format!("{}/", encode_part(instance.as_str())),
        None => String::new(),
    };
    let position = format!("{:020}-{:010}-{:020}", id.incarnation.0, id.partition.0, id.offset.0);
    format!("{}{instance}{position}", dead_letters(&id.group))
}

/// What the keys of all dead letters of a group start with.
pub(crate) fn dead_letters(id: &GroupId) -> String {
    format!("{}/", under(DEAD_LETTERS, id))
}

/// What the keys of all dead letters of a topic start with, for one tenant.
pub(crate) fn dead_letters_of_topic(tenant: &TenantId, topic: &TopicName) -> String {
    format!("{}/", join(DEAD_LETTERS, &[tenant.as_str(), topic.as_str()]))
}

/// Above the keys of all dead letters of a tenant and below those of the next: `0` follows the separator.
pub(crate) fn above_dead_letters_of_tenant(tenant: &TenantId) -> String {
    format!("{}0", join(DEAD_LETTERS, &[tenant.as_str()]))
}

/// The dead letter of a key.
pub(crate) fn read_dead_letter(key: &str) -> Option<DeadLetterId> {
    let parts = split(DEAD_LETTERS, key)?;
    let (position, rest) = parts.split_last()?;
    let (group, instance) = rest.split_at_checked(4)?;
    let instance = match instance {
        [] => None,
        [instance] => Some(InstanceId::new(instance).ok()?),
        _ => return None,
    };
    let mut numbers = position.split('-');
    let mut number = |width: usize| -> Option<u64> {
        let digits = numbers.next()?;
        let plain = digits.len() == width && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().ok())?
    };
    let (incarnation, partition, offset) = (number(20)?, number(10)?, number(20)?);
    if numbers.next().is_some() {
        return None;
    }
    Some(DeadLetterId {
        group: group_of(group)?,
        instance,
        incarnation: Incarnation(incarnation),
        partition: PartitionId(u32::try_from(partition).ok()?),
        offset: Offset(offset),
    })
}

/// The tenant of any key of a dead letter, also of one that is not readable otherwise.
pub(crate) fn tenant_of_dead_letter(key: &str) -> Option<TenantId> {
    let (tenant, _) = key.strip_prefix(DEAD_LETTERS)?.split_once('/')?;
    TenantId::new(&decode_part(tenant)?).ok()
}

fn under(root: &str, id: &GroupId) -> String {
    join(root, &[id.tenant.as_str(), id.topic.as_str(), id.kind.as_str(), id.name.as_str()])
}

fn group_of(parts: &[String]) -> Option<GroupId> {
    let [tenant, topic, kind, name] = parts else { return None };
    Some(GroupId {
        tenant: TenantId::new(tenant).ok()?,
        topic: TopicName::new(topic).ok()?,
        kind: GroupKind::read(kind)?,
        name: GroupName::new(name).ok()?,
    })
}

#[cfg(test)]
mod tests;
