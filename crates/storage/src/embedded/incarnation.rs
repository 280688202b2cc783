//! The number of a log that is made now.

use mesh_base::Chance;
use mesh_frame::Incarnation;

/// A number for a log that is made now, which tells it from the others that had its name.
pub(crate) fn new_incarnation(chance: &Chance) -> Incarnation {
    Incarnation(chance.number())
}
