//! The admin port without a socket: requests into the router, over real delivery.

mod groups;
mod guard;
mod letters;
mod rig;
mod topics;
