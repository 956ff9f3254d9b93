//! The directory of a history: its lock, its files, and its errors.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::Error;

const HISTORY: &str = "history.plimsoll";
const UNFINISHED: &str = "history.plimsoll.new";
const LOCK: &str = "lock";
/// Maximum number of damaged copies to keep. The last one is overwritten.
const MAX_DAMAGED_COPIES: u32 = 9;
/// How long to wait for a lock, and how often to try.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Kept open, so that a process without free file descriptors can still sync it.
    pub handle: File,
    /// The operating system releases the lock when the process ends.
    _lock: Option<File>,
    pub is_read_only: bool,
}

impl Directory {
    /// Locks the directory exclusively. Creates it if its parent exists.
    pub fn lock_exclusive(path: &Path) -> Result<Self, Error> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let why = "its parent directory does not exist: create it, or mount the volume";
                return Err(unusable(path, why));
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists && !path.is_dir() => {
                return Err(failed(path, "create", &error));
            }
            _ => {}
        }
        if !path.is_dir() {
            return Err(unusable(path, "it is not a directory: use a directory for the history"));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(|error| failed(path, "write to", &error))?;
        let handle = File::open(path).map_err(|error| failed(path, "open", &error))?;
        lock_with_timeout(path, || lock.try_lock())?;
        Ok(Self { path: path.into(), handle, _lock: Some(lock), is_read_only: false })
    }

    /// Locks the directory for reading, which allows other readers. Changes nothing in it.
    pub fn take_read_only(path: &Path) -> Result<Self, Error> {
        let handle = File::open(path).map_err(|error| failed(path, "open", &error))?;
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => {
                lock_with_timeout(path, || lock.try_lock_shared())?;
                Some(lock)
            }
            // A writer would have created it.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(path, "lock", &error)),
        };
        Ok(Self { path: path.into(), handle, _lock: lock, is_read_only: true })
    }

    pub fn location(&self) -> String {
        self.path.display().to_string()
    }

    /// Replaces the handle that syncs the directory, to make syncing fail.
    #[cfg(test)]
    pub fn replace_handle(&mut self, handle: File) -> File {
        std::mem::replace(&mut self.handle, handle)
    }

    pub fn open_history(&self) -> io::Result<Option<File>> {
        if !self.is_read_only {
            let _ = fs::remove_file(self.path.join(UNFINISHED));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(!self.is_read_only);
        match options.open(self.path.join(HISTORY)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the history file with the output of `write`. After an error the file is unchanged. Returns the new file, the
    /// result of `write`, and whether the directory was synced: if not, the previous file may reappear after a crash of the
    /// machine.
    pub fn replace_history<T>(
        &self,
        write: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<(File, T, io::Result<()>)> {
        let unfinished = self.path.join(UNFINISHED);
        let replaced = (|| {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .read(true)
                .write(true)
                .open(&unfinished)?;
            let written = write(&mut file)?;
            file.sync_all()?;
            fs::rename(&unfinished, self.path.join(HISTORY))?;
            // The rename is durable once the directory is synced.
            Ok((file, written, self.handle.sync_all()))
        })();
        if replaced.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        replaced
    }

    /// Keeps a copy of the history file for inspection, and returns its name.
    pub fn keep_damaged_copy(&self) -> io::Result<String> {
        let history = self.path.join(HISTORY);
        for number in 1..=MAX_DAMAGED_COPIES {
            let name = format!("{HISTORY}.damaged-{number}");
            let copy = self.path.join(&name);
            if number == MAX_DAMAGED_COPIES {
                let _ = fs::remove_file(&copy);
            }
            match fs::hard_link(&history, &copy) {
                Ok(()) => return Ok(name),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                // Not every file system has hard links.
                Err(_) => return fs::copy(&history, &copy).map(|_| name),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// Locks a file. Waits briefly, because a process that is exiting, or a new child that still holds the open files of its
/// parent, releases the lock soon.
fn lock_with_timeout(
    path: &Path,
    lock: impl Fn() -> Result<(), TryLockError>,
) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_TIMEOUT => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::InUse { place: path.display().to_string() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(path, "lock", &error)),
        }
    }
}

fn failed(path: &Path, action: &str, error: &io::Error) -> Error {
    unusable(path, &format!("cannot {action} it: {}", explain(error)))
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::Unusable { place: path.display().to_string(), why: why.to_owned() }
}

/// Describes an I/O error, with the remedy if known.
pub fn explain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "permission denied: allow this user to write there".into(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only: mount it writable".into(),
        ErrorKind::StorageFull => "no space left: free some or enlarge the volume".into(),
        ErrorKind::QuotaExceeded => "the quota is exceeded: raise it".into(),
        ErrorKind::FileTooLarge => "the file is too large: raise the file size limit".into(),
        ErrorKind::Unsupported => "the file system does not support this: use a local one".into(),
        _ => error.to_string(),
    }
}
