//! Texts with a rule: names, paths, secrets.

use std::path::PathBuf;

use mesh_frame::NameError;

use super::Kind;
use crate::config::Secret;

/// The name of something, checked by the type that it becomes.
#[derive(Debug)]
pub struct Name<T: 'static> {
    /// Makes the name, or says why it is none.
    pub read: fn(&str) -> Result<T, NameError>,
    /// What it accepts, in words.
    pub accepted: &'static str,
}

impl<T> Kind for Name<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<T, String> {
        (self.read)(text).map_err(|error| format!("is not accepted: {error}"))
    }

    fn accepted(&self) -> String {
        self.accepted.to_owned()
    }
}

/// A folder, relative to where the server is started unless it begins with `/`.
#[derive(Debug)]
pub struct Folder;

impl Kind for Folder {
    type Value = PathBuf;

    fn read(&self, text: &str) -> Result<PathBuf, String> {
        if text.contains('\0') {
            Err("contains a null character".to_owned())
        } else {
            Ok(PathBuf::from(text))
        }
    }

    fn accepted(&self) -> String {
        "the path of a folder, made when it is missing".to_owned()
    }
}

/// A secret that is sent in an HTTP header. A blank one is an error, never "none".
#[derive(Debug)]
pub struct Token;

impl Kind for Token {
    type Value = Secret;

    fn read(&self, text: &str) -> Result<Secret, String> {
        if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Secret::new(text))
        } else {
            Err("has a character that a bearer token cannot have".to_owned())
        }
    }

    fn accepted(&self) -> String {
        "visible ASCII characters without blanks; leave the key out for none".to_owned()
    }
}

/// A file, relative to where the server is started unless it begins with `/`.
#[derive(Debug)]
pub struct File;

impl Kind for File {
    type Value = PathBuf;

    fn read(&self, text: &str) -> Result<PathBuf, String> {
        Folder.read(text)
    }

    fn accepted(&self) -> String {
        "the path of a file that is there".to_owned()
    }
}

/// A file of the server's own, made when it is missing. Relative to where the server is started unless it begins with `/`.
#[derive(Debug)]
pub struct OwnFile;

impl Kind for OwnFile {
    type Value = PathBuf;

    fn read(&self, text: &str) -> Result<PathBuf, String> {
        Folder.read(text)
    }

    fn accepted(&self) -> String {
        "the path of a file, made when it is missing; its folder is there".to_owned()
    }
}

/// Any text.
#[derive(Debug)]
pub struct Text {
    /// What it accepts, in words.
    pub accepted: &'static str,
}

impl Kind for Text {
    type Value = String;

    fn read(&self, text: &str) -> Result<String, String> {
        if text.chars().any(char::is_control) {
            Err("contains a control character".to_owned())
        } else {
            Ok(text.to_owned())
        }
    }

    fn accepted(&self) -> String {
        self.accepted.to_owned()
    }
}

/// Words with commas between them.
#[derive(Debug)]
pub struct Names {
    /// What each of them is.
    pub of: &'static str,
    /// Whether a word is one.
    pub is_one: fn(&str) -> bool,
}

impl Kind for Names {
    type Value = Vec<String>;

    fn read(&self, text: &str) -> Result<Vec<String>, String> {
        let words = text.split(',').map(str::trim);
        words
            .map(|word| {
                if (self.is_one)(word) {
                    Ok(word.to_owned())
                } else {
                    Err(format!("has a part that is not {}", self.of))
                }
            })
            .collect()
    }

    fn accepted(&self) -> String {
        format!("one or more with commas between them, each {}", self.of)
    }
}

/// Whether a word is one without blanks.
pub fn no_blank(word: &str) -> bool {
    !word.is_empty() && !word.chars().any(|char| char.is_whitespace() || char.is_control())
}

/// Whether a word is an origin as browsers send it, or `*`.
pub fn is_origin(word: &str) -> bool {
    let Some((scheme, host)) = word.split_once("://") else { return word == "*" };
    matches!(scheme, "http" | "https")
        && !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte))
        && !host.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_browsers_send() {
        for good in ["*", "https://app.example", "http://localhost:3000", "http://[::1]:8080"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in
            ["", "app.example", "https://", "https://app.example/", "https://App.example", "ftp://a", "null"]
        {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
