//! Which events go to whom, until each is acknowledged or dead-lettered.

pub mod lane;
