//! The stores in Meta, on the local driver, in memory and through scripted faults.

mod arrange;
mod dead_letter_store_contract;
mod dead_letter_store_restart;
mod identity_store_contract;
mod rate_limit_store_contract;
mod session_store_contract;
mod session_store_fencing;
mod subscription_store_contract;
mod subscription_store_multi_instance;
mod task_store_contract;
mod task_store_meta_failure;
