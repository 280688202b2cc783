//! `eventmesh group`: who reads what, how far behind, and moving that.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    connect::{Admin, Connect, Form, Local},
    output::{answer, cell, list, table},
    problem::{Failure, Outcome},
};

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List groups with their lag, of one topic or all
    List(List),
    /// Show the members, the settings and the partitions of a group
    Show(One),
    /// Make a group go on somewhere else
    Seek(Seek),
    /// Remove a group with its positions
    Remove(One),
}

/// Lists groups.
#[derive(Debug, Args)]
pub struct List {
    /// Only those of this topic
    topic: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

/// Which group.
#[derive(Debug, Args)]
pub struct One {
    /// The topic
    topic: String,
    /// The group; for a client's own group the client
    group: String,
    /// The tenant; the server's default without it
    #[arg(long)]
    tenant: Option<String>,
    /// `lb` for a shared group, `bc` for a client's own; needed when both are called the same
    #[arg(long, value_parser = ["lb", "bc"])]
    kind: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

/// Where a group goes.
#[derive(Debug, Args)]
pub struct Seek {
    #[command(flatten)]
    which: One,
    /// `earliest`, `latest`, a time as 2026-12-01T08:00:00Z, an offset where the topic has one partition, or
    /// PARTITION=OFFSET with commas between them
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Only say where it would go
    #[arg(long)]
    dry_run: bool,
}

impl GroupCommand {
    pub(crate) fn connect(&self) -> &Connect {
        match self {
            Self::List(List { connect, .. })
            | Self::Show(One { connect, .. })
            | Self::Remove(One { connect, .. })
            | Self::Seek(Seek { which: One { connect, .. }, .. }) => connect,
        }
    }

    pub(crate) async fn run(self, local: &Local) -> Result<(), Failure> {
        let (form, admin) = (self.connect().form()?, self.connect().admin(local)?);
        match self {
            Self::List(List { topic, .. }) => {
                let groups = groups(&admin, topic.as_deref()).await?;
                list(
                    form,
                    &groups,
                    &["topic", "group", "kind", "mode", "members", "lag", "outstanding"],
                    |group| {
                        let members = group["members"].as_array().map_or(0, Vec::len).to_string();
                        let cell = |name: &str| cell(&group[name]);
                        vec![
                            cell("topic"),
                            cell("group"),
                            cell("kind"),
                            cell("mode"),
                            members,
                            cell("lag"),
                            cell("outstanding"),
                        ]
                    },
                )
            }
            Self::Show(which) => which.show(&admin, form).await,
            Self::Remove(which) => {
                let removed =
                    admin.client.delete(&["groups", &which.topic, &which.group], &which.query()).await;
                let removed = removed.map_err(|error| which.failure(&admin, &error))?;
                answer(form, &removed, |removed| {
                    format!("{} of {} is removed\n", cell(&removed["group"]), cell(&removed["topic"]))
                })
            }
            Self::Seek(Seek { which, to, dry_run }) => {
                let mut body = json!({ "to": place(&to)? });
                if dry_run {
                    body["dryRun"] = true.into();
                }
                let path = ["groups", &which.topic, &which.group, "seek"];
                let sought = admin.client.post(&path, &which.query(), &body).await;
                let sought = sought.map_err(|error| which.failure(&admin, &error))?;
                answer(form, &sought, |sought| moved(sought, dry_run))
            }
        }
    }
}

async fn groups(admin: &Admin, topic: Option<&str>) -> Result<Vec<Value>, Failure> {
    let query: Vec<(&str, &str)> = topic.map(|topic| ("topic", topic)).into_iter().collect();
    match admin.client.get(&["groups"], &query).await {
        Ok(Value::Array(groups)) => Ok(groups),
        Ok(other) => Err(Failure::other(format!("the server answered {other}"))),
        Err(error) => Err(admin.failure(&error)),
    }
}

impl One {
    fn query(&self) -> Vec<(&str, &str)> {
        let options = [("tenant", &self.tenant), ("kind", &self.kind)];
        options.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect()
    }

    fn failure(&self, admin: &Admin, error: &mesh_client::Error) -> Failure {
        let failure = admin.failure(error);
        if failure.outcome() != Outcome::Missing {
            return failure;
        }
        failure.or_advice(format!("`eventmesh group list {}` shows which there are.", self.topic))
    }

    async fn show(&self, admin: &Admin, form: Form) -> Result<(), Failure> {
        let wanted = |group: &Value| {
            group["group"] == *self.group
                && self.tenant.as_ref().is_none_or(|tenant| group["tenant"] == **tenant)
                && self.kind.as_ref().is_none_or(|kind| group["kind"] == **kind)
        };
        let found: Vec<Value> = groups(admin, Some(&self.topic)).await?.into_iter().filter(wanted).collect();
        match found.as_slice() {
            [group] => answer(form, group, people),
            [] => Err(Failure::new(Outcome::Missing, format!("{} has no group {}", self.topic, self.group))
                .advice(format!("`eventmesh group list {}` shows which there are.", self.topic))),
            _ => Err(Failure::new(
                Outcome::Refused,
                format!("{} groups of {} are called {}", found.len(), self.topic, self.group),
            )
            .advice("--kind and --tenant say which one is meant.")),
        }
    }
}

/// The place as the server reads it.
fn place(text: &str) -> Result<Value, Failure> {
    if !text.contains('=') {
        let is_place =
            ["earliest", "latest"].contains(&text) || text.starts_with(|first: char| first.is_ascii_digit());
        return if is_place {
            Ok(text.into())
        } else {
            Err(Failure::usage(format!(
                "--to: {text:?} is no place: earliest, latest, a time as 2026-12-01T08:00:00Z, an offset where the topic \
                 has one partition, or PARTITION=OFFSET as in 0=12,1=7"
            )))
        };
    }
    let mut offsets = serde_json::Map::new();
    for part in text.split(',') {
        let numbers = part.split_once('=').map(|(partition, offset)| (partition.trim(), offset.trim()));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match numbers {
            Some((partition, offset)) if is_number(partition) && is_number(offset) => {
                if offsets.insert(partition.to_owned(), offset.into()).is_some() {
                    return Err(Failure::usage(format!("--to names partition {partition} twice")));
                }
            }
            _ => return Err(Failure::usage(format!("--to: {part:?} is not PARTITION=OFFSET"))),
        }
    }
    Ok(json!({ "offsets": offsets }))
}

fn moved(sought: &Value, dry_run: bool) -> String {
    let empty = serde_json::Map::new();
    let (from, to) =
        (sought["from"].as_object().unwrap_or(&empty), sought["to"].as_object().unwrap_or(&empty));
    let mut rows: Vec<(u64, Vec<String>)> = to
        .iter()
        .map(|(partition, to)| {
            let from = from.get(partition).map_or_else(|| "-".to_owned(), cell);
            (partition.parse().unwrap_or(u64::MAX), vec![partition.clone(), from, cell(to)])
        })
        .collect();
    rows.sort();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
    let end = if dry_run { "nothing was changed\n" } else { "" };
    format!("{}{end}", table(&["partition", "from", "to"], &rows))
}

fn people(group: &Value) -> String {
    let all = |name: &str| group[name].as_array().cloned().unwrap_or_default();
    let rows = |name: &str, heads: &[&str]| -> String {
        let rows: Vec<Vec<String>> =
            all(name).iter().map(|one| heads.iter().map(|head| cell(&one[*head])).collect()).collect();
        table(heads, &rows)
    };
    format!(
        "{} of {}: {}, lag {}, outstanding {}\n\n{}\n{}\nsettings: {}\n",
        cell(&group["group"]),
        cell(&group["topic"]),
        cell(&group["mode"]),
        group["lag"],
        group["outstanding"],
        rows("members", &["clientId", "inFlight", "maxInFlight"]),
        rows("partitions", &["partition", "floor", "nextToRead", "end", "lag", "outstanding"]),
        group["settings"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_or_offsets_of_partitions() {
        let read = |text: &str| place(text).map_err(|failure| failure.to_string());
        assert_eq!(read("earliest"), Ok(json!("earliest")));
        assert_eq!(read("12"), Ok(json!("12")));
        assert_eq!(read("0=12, 3=0"), Ok(json!({"offsets": {"0": "12", "3": "0"}})));
        assert_eq!(read("2026-12-01T08:00:00Z"), Ok(json!("2026-12-01T08:00:00Z")));
        for wrong in ["nowhere", "", "-1", "earliestt", "0=", "=1", "a=1", "0=1,", "0=-1", "0=1,0=2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
