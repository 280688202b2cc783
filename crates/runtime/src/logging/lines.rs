//! The lines of the log on their way to the standard output: a bounded queue, and the thread that empties it.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::Arc,
    time::Duration,
};

use mesh_base::{Counter, Signals, Tasks};
use parking_lot::{Condvar, Mutex};

/// How many bytes of lines may wait.
const MOST_WAITING: usize = 1 << 20;

/// The queue; clones are the same. As a writer it takes one line a call, and never blocks or fails.
#[derive(Clone, Debug)]
pub struct LogLines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is a line.
    came: Condvar,
    /// Everything is written or lost.
    emptied: Condvar,
    lost: Counter,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Lines,
    /// The thread is writing lines that it took.
    is_writing: bool,
}

/// Lines, one behind the other.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The standard output without the lock and the buffer that the process shares.
pub(super) fn standard_output() -> Box<dyn Write + Send> {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(output) => Box::new(File::from(output)),
        // It is closed: what is written is lost and counted.
        Err(_) => Box::new(Closed),
    }
}

/// Takes nothing.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _line: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogLines {
    /// An empty queue, whose lines a thread writes to `output`.
    pub(super) fn start(output: Box<dyn Write + Send>) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            came: Condvar::new(),
            emptied: Condvar::new(),
            lost: Counter::default(),
        };
        let lines = Self(Arc::new(shared));
        let written = lines.clone();
        // It ends with the process: nobody waits for it without a bound, since a write may hang.
        drop(Tasks::thread("log", move || written.write_to(output)));
        lines
    }

    /// Shows how many lines were lost as a metric.
    pub fn show(&self, signals: &Signals) {
        signals.show_counter(
            "log_lines_lost",
            "Lines of the log that the standard output did not take",
            &self.0.lost,
        );
    }

    /// Waits until every line so far is written or lost, at most `bound`.
    pub fn flush(&self, bound: Duration) {
        let mut queue = self.0.queue.lock();
        let waits = |queue: &mut Queue| queue.is_writing || !queue.waiting.ends.is_empty();
        let _timed_out = self.0.emptied.wait_while_for(&mut queue, waits, bound);
    }

    fn push(&self, line: &[u8]) {
        let mut queue = self.0.queue.lock();
        if queue.waiting.bytes.len() + line.len() > MOST_WAITING {
            drop(queue);
            self.0.lost.inc();
            return;
        }
        queue.waiting.bytes.extend_from_slice(line);
        let end = queue.waiting.bytes.len();
        queue.waiting.ends.push(end);
        let is_first = queue.waiting.ends.len() == 1;
        drop(queue);
        if is_first {
            self.0.came.notify_one();
        }
    }

    /// Writes lines as they come.
    fn write_to(&self, mut output: Box<dyn Write + Send>) {
        let mut lines = Lines::default();
        let mut told = 0;
        loop {
            lines.clear();
            let mut queue = self.0.queue.lock();
            queue.is_writing = false;
            if queue.waiting.ends.is_empty() {
                self.0.emptied.notify_all();
            }
            self.0.came.wait_while(&mut queue, |queue| queue.waiting.ends.is_empty());
            std::mem::swap(&mut lines, &mut queue.waiting);
            queue.is_writing = true;
            drop(queue);
            let written = write(&mut output, &lines.bytes);
            let lost = lines.ends.iter().filter(|end| **end > written).count();
            self.0.lost.inc_by(lost as u64);
            let all_lost = self.0.lost.get();
            if lost == 0 && all_lost > told {
                tracing::warn!(lines = all_lost - told, "lines of the log were lost: nobody took them");
                told = all_lost;
            }
        }
    }
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes as much as is taken; how much that was.
fn write(output: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Takes lines when it is told how many bytes it may take.
    struct Slow {
        may_take: mpsc::Receiver<io::Result<usize>>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    type Allow = mpsc::Sender<io::Result<usize>>;

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = self.may_take.recv().unwrap_or(Ok(usize::MAX))?;
            let count = most.min(bytes.len());
            self.taken.lock().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (LogLines, Allow, Arc<Mutex<Vec<u8>>>) {
        let (allow, may_take) = mpsc::channel();
        let taken = Arc::new(Mutex::new(Vec::new()));
        (LogLines::start(Box::new(Slow { may_take, taken: taken.clone() })), allow, taken)
    }

    #[test]
    fn lines_come_whole_and_in_order_however_little_is_taken_at_once() {
        let (mut lines, allow, taken) = slow();
        let mut expected = String::new();
        for number in 0..100 {
            let line = format!("line {number}\n");
            lines.write_all(line.as_bytes()).expect("it takes everything");
            expected.push_str(&line);
        }
        for count in [1, 2, 3, 50] {
            allow.send(Ok(count)).expect("the thread waits");
        }
        drop(allow);
        lines.flush(SOON);
        assert_eq!(String::from_utf8(taken.lock().clone()).expect("text"), expected);
        assert_eq!(lines.0.lost.get(), 0);
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_no_time() {
        let (mut lines, allow, taken) = slow();
        let line = [b'x'; 1_024];
        for _ in 0..3 * MOST_WAITING / line.len() {
            lines.write_all(&line).expect("it takes everything");
        }
        let lost = lines.0.lost.get();
        assert!(lost >= (MOST_WAITING / line.len()) as u64, "{lost} lines were lost");
        assert!(lines.0.queue.lock().waiting.bytes.len() <= MOST_WAITING);
        lines.flush(Duration::from_millis(10));
        assert_eq!(taken.lock().len(), 0, "nothing was read, and nobody waited for it");
        drop(allow);
        lines.flush(SOON);
        let written = taken.lock().len() / line.len();
        assert_eq!(written as u64 + lost, (3 * MOST_WAITING / line.len()) as u64);
    }

    #[test]
    fn a_reader_that_is_gone_costs_the_lines_that_were_not_written_whole() {
        let (mut lines, allow, taken) = slow();
        lines.write_all(b"first\n").expect("it takes everything");
        allow.send(Ok(3)).expect("the thread waits");
        allow.send(Err(io::ErrorKind::BrokenPipe.into())).expect("the thread waits");
        lines.flush(SOON);
        assert_eq!((lines.0.lost.get(), &taken.lock()[..]), (1, &b"fir"[..]));
        lines.write_all(b"second\n").expect("it takes everything");
        allow.send(Err(io::ErrorKind::BrokenPipe.into())).expect("the thread waits");
        lines.flush(SOON);
        assert_eq!(lines.0.lost.get(), 2);
    }
}
