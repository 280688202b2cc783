//! Delivery in process, with scripted faults of the log and of Meta.

mod alone;
mod dead_letters;
mod dispatch;
mod groups;
mod operate;
mod receivers;
mod replay;
mod rig;
mod streams;
mod sweep;
mod verbs;
