//! MetaStore: compare-and-set records with watches; the local driver.
