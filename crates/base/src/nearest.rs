//! The known word that a misspelt one most probably meant.

/// How alike two words must be, from 0 to 1, for one to be offered for the other.
const ALIKE: f64 = 0.6;

/// The word of `known` that is most like `word`, case aside; none when none is much like it.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    known
        .into_iter()
        .map(|other| (strsim::normalized_damerau_levenshtein(&word, &other.to_ascii_lowercase()), other))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_word_is_offered_when_it_is_near() {
        let known = ["eventmesh.http.port", "eventmesh.admin.port", "eventmesh.admin.token"];
        for (word, expected) in [
            ("eventmesh.admin.tokem", Some("eventmesh.admin.token")),
            ("eventmesh.HTTP.port", Some("eventmesh.http.port")),
            ("nothing-like-it", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
