//! The directory that history lives in: who may use it, which files are in it, and what goes wrong there.

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
/// How many damaged files are kept; the last place is used again and again.
const MAX_DAMAGED_COPIES: u32 = 9;
/// How long a lock is waited for, and how often it is looked at.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// A directory in use by this process alone.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Opened once: a process without free file descriptors can still sync it.
    handle: File,
    /// The operating system gives the lock back when the process ends, however it ends.
    _lock: Option<File>,
    is_read_only: bool,
}

/// A history file that took the place of the one before.
#[derive(Debug)]
pub struct ReplacedFile<T> {
    pub file: File,
    /// What writing it came to.
    pub written: T,
    /// Whether the directory was synced. If not, the file before may come back after a crash of the machine.
    pub synced: io::Result<()>,
}

impl Directory {
    /// Takes the directory; makes it when only its last part is missing.
    pub fn lock_exclusive(path: &Path) -> Result<Self, Error> {
        let unusable = |why: String| Error::Unusable { place: path.display().to_string(), why };
        match fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(unusable(
                    "the directory above it does not exist: create it, or mount the volume".into(),
                ));
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists && !path.is_dir() => {
                return Err(unusable(format!("cannot create it: {}", explain(&error))));
            }
            _ => {}
        }
        if !path.is_dir() {
            return Err(unusable("it is not a directory: name a directory for the history".into()));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(|e| unusable(format!("cannot write into it: {}", explain(&e))))?;
        let handle =
            File::open(path).map_err(|e| unusable(format!("cannot open it: {}", explain(&e))))?;
        match lock_patiently(|| lock.try_lock()) {
            Ok(()) => {
                Ok(Self { path: path.into(), handle, _lock: Some(lock), is_read_only: false })
            }
            Err(TryLockError::WouldBlock) => {
                Err(Error::InUse { place: path.display().to_string() })
            }
            Err(TryLockError::Error(error)) => {
                Err(unusable(format!("it cannot be locked: {}", explain(&error))))
            }
        }
    }

    /// Takes the directory to read in it, beside others who do. Nothing in it is created, changed or removed.
    pub fn take_read_only(path: &Path) -> Result<Self, Error> {
        let place = || path.display().to_string();
        let unusable = |why: String| Error::Unusable { place: place(), why };
        let handle =
            File::open(path).map_err(|e| unusable(format!("cannot open it: {}", explain(&e))))?;
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(lock),
            // Whoever writes there has made one.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                return Err(unusable(format!("it cannot be locked: {}", explain(&error))));
            }
        };
        match lock.as_ref().map_or(Ok(()), |lock| lock_patiently(|| lock.try_lock_shared())) {
            Ok(()) => Ok(Self { path: path.into(), handle, _lock: lock, is_read_only: true }),
            Err(TryLockError::WouldBlock) => Err(Error::InUse { place: place() }),
            Err(TryLockError::Error(error)) => {
                Err(unusable(format!("it cannot be locked: {}", explain(&error))))
            }
        }
    }

    /// Whether nothing is written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The directory itself, as a file.
    pub fn as_file(&self) -> io::Result<File> {
        self.handle.try_clone()
    }

    /// Where it is, for messages.
    pub fn location(&self) -> String {
        self.path.display().to_string()
    }

    /// Replaces the handle by which the directory is synced, to make that fail.
    #[cfg(test)]
    pub fn replace_handle(&mut self, handle: File) -> File {
        std::mem::replace(&mut self.handle, handle)
    }

    /// The history file, if there is one.
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

    /// Replaces the history file by what `write` writes. After an error it is as it was.
    pub fn replace_history<T>(
        &self,
        write: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<ReplacedFile<T>> {
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
            Ok(ReplacedFile { file, written, synced: self.handle.sync_all() })
        })();
        if replaced.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        replaced
    }

    /// Keeps the history file under another name as well, for somebody to look at. Answers the name.
    pub fn keep_damaged_copy(&self) -> io::Result<String> {
        let history = self.path.join(HISTORY);
        for number in 1..=MAX_DAMAGED_COPIES {
            let name = format!("{HISTORY}.damaged-{number}");
            let aside = self.path.join(&name);
            if number == MAX_DAMAGED_COPIES {
                let _ = fs::remove_file(&aside);
            }
            match fs::hard_link(&history, &aside) {
                Ok(()) => return Ok(name),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                // Not every file system has hard links.
                Err(_) => return fs::copy(&history, &aside).map(|_| name),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// Locks a file. A process that is on its way out, or a child that was just started and still holds the
/// open files of its parent, lets go within moments.
fn lock_patiently(lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let begun = Instant::now();
    loop {
        match lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// A failure of the file system in words, with what to do where that is known.
pub fn explain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "no permission: let this user write there".into(),
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: mount it for writing".into()
        }
        ErrorKind::StorageFull => "no space left: free some or give it more".into(),
        ErrorKind::QuotaExceeded => "the quota is used up: raise it".into(),
        ErrorKind::FileTooLarge => "the file may not grow: raise the limit on file sizes".into(),
        ErrorKind::Unsupported => "the file system cannot do that: use a local one".into(),
        _ => error.to_string(),
    }
}
