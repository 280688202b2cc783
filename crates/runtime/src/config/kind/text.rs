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
