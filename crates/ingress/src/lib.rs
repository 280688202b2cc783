//! Every way in, and the one intake behind them.
