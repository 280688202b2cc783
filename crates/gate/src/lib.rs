//! SecurityGate: who may do what.
//!
//! An edge shows what a request brought ([`Presented`]) and gets a [`Caller`]; it then asks for one action
//! on one resource and gets the request back as [`Admitted`], which nobody outside this crate can make. What
//! works for clients takes only `Admitted<…>`, so a way in that forgets the gate does not compile.
//!
//! Without a filter the gate is open: every caller is the default tenant's, everything is admitted, and the
//! basis says so ([`Basis::NoGate`]).

mod action;
mod admitted;
mod caller;
mod denied;
mod gate;

pub use action::{Action, Resource};
pub use admitted::{Admitted, Basis};
pub use caller::{Caller, Presented, Principal, Protocol};
pub use denied::{Denied, DeniedKind};
pub use gate::SecurityGate;
