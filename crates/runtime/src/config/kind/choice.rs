//! Values that are one of a few words.

use super::Kind;

/// One word of a [`Choice`].
#[derive(Debug)]
pub struct Word<T: 'static> {
    /// The word, exactly as it must be written.
    pub word: &'static str,
    /// What it stands for.
    pub value: T,
    /// What it does, for the reference.
    pub meaning: &'static str,
}

/// One of a few words, case included.
#[derive(Debug)]
pub struct Choice<T: 'static> {
    /// The words.
    pub options: &'static [Word<T>],
    /// Words that mean something elsewhere and that this build lacks: refused, but not as if they were a slip. One
    /// that is an option too is left to a rule, which can say what it lacks.
    pub not_in_this_build: &'static [&'static str],
}

impl<T: Copy + Send + Sync> Kind for Choice<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<T, String> {
        if let Some(option) = self.options.iter().find(|option| option.word == text) {
            return Ok(option.value);
        }
        if self.not_in_this_build.contains(&text) {
            return Err("is not in this build".to_owned());
        }
        let mut refusal = "is not one of the accepted values".to_owned();
        if let Some(word) = mesh_base::nearest(text, self.options.iter().map(|option| option.word)) {
            refusal.push_str(&format!(" (did you mean {word}?)"));
        }
        Err(refusal)
    }

    fn accepted(&self) -> String {
        let there = self.options.iter().map(|option| option.word);
        let there = there.filter(|word| !self.not_in_this_build.contains(word));
        let mut text = there.collect::<Vec<_>>().join(", ");
        if !self.not_in_this_build.is_empty() {
            text.push_str(&format!(" (not in this build: {})", self.not_in_this_build.join(", ")));
        }
        text
    }

    fn options(&self) -> Vec<(&'static str, &'static str)> {
        self.options.iter().map(|option| (option.word, option.meaning)).collect()
    }
}

/// `true` or `false`.
#[derive(Debug)]
pub struct Switch;

impl Kind for Switch {
    type Value = bool;

    fn read(&self, text: &str) -> Result<bool, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("is neither true nor false".to_owned()),
        }
    }

    fn accepted(&self) -> String {
        "true, false".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOUR: Choice<u8> = Choice {
        options: &[
            Word { word: "RED", value: 1, meaning: "red" },
            Word { word: "GREEN", value: 2, meaning: "green" },
        ],
        not_in_this_build: &["blue"],
    };

    #[test]
    fn a_choice_takes_its_words_only() {
        let cases: [(&str, Result<u8, &str>); 6] = [
            ("RED", Ok(1)),
            ("GREEN", Ok(2)),
            ("GREEEN", Err("is not one of the accepted values (did you mean GREEN?)")),
            ("red", Err("is not one of the accepted values (did you mean RED?)")),
            ("blue", Err("is not in this build")),
            ("zzzzz", Err("is not one of the accepted values")),
        ];
        for (text, expected) in cases {
            assert_eq!(COLOUR.read(text), expected.map_err(str::to_owned), "{text}");
        }
        assert_eq!(COLOUR.accepted(), "RED, GREEN (not in this build: blue)");
    }

    #[test]
    fn a_switch_is_true_or_false_and_nothing_else() {
        assert_eq!(Switch.read("true"), Ok(true));
        assert_eq!(Switch.read("false"), Ok(false));
        for text in ["TRUE", "yes", "1", "on", "true;"] {
            assert!(Switch.read(text).is_err(), "{text}");
        }
    }
}
