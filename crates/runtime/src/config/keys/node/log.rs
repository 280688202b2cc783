//! Keys of the log.

use tracing::Level;

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Choice, Word},
    settings::LogFormat,
};

/// This group.
pub const GROUP: Group = Group { title: "Log", about: "What is written to the standard output, and how." };

keys! {
    FORMAT: Choice<LogFormat> = Choice {
        options: &[
            Word { word: "text", value: LogFormat::Text, meaning: "a line for people." },
            Word { word: "json", value: LogFormat::Json, meaning: "one JSON object a line." },
        ],
        not_in_this_build: &[],
    }, "eventmesh.log.format", Fallback::Value("text"),
    "The form of the log.";

    LEVEL: Choice<Level> = Choice {
        options: &[
            Word { word: "error", value: Level::ERROR, meaning: "a person should look." },
            Word { word: "warn", value: Level::WARN, meaning: "it healed, or will." },
            Word { word: "info", value: Level::INFO, meaning: "the life of the instance." },
            Word { word: "debug", value: Level::DEBUG, meaning: "decisions about single requests." },
            Word { word: "trace", value: Level::TRACE, meaning: "everything." },
        ],
        not_in_this_build: &[],
    }, "eventmesh.log.level", Fallback::Value("info"),
    "The least important messages that are written.";
}
