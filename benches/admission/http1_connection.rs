//! A connection with one request at a time. The client shares the cores with the server, so it does as little as
//! possible for HTTP/1.1 over TLS: it writes a request at once, and parses only the length of a response.

use std::{
    io::{Error, ErrorKind, Read as _, Result, Write as _},
    net::TcpStream,
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

/// End of the response head.
const END: &[u8] = b"\r\n\r\n";

/// An HTTP/1.1 connection over TLS.
pub struct Http1Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// Received bytes that were not returned yet.
    buffer: Vec<u8>,
}

impl Http1Connection {
    /// Connects to a port on this machine.
    pub fn connect(port: u16, name: &'static str, tls: ClientConfig) -> Result<Self> {
        let name = ServerName::try_from(name).map_err(Error::other)?;
        let tls = ClientConnection::new(Arc::new(tls), name).map_err(Error::other)?;
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        Ok(Self { stream: StreamOwned::new(tls, socket), buffer: Vec::with_capacity(16 << 10) })
    }

    /// Sends a complete request and returns the body of the response.
    pub fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>> {
        self.stream.write_all(question)?;
        self.stream.flush()?;
        let head = loop {
            if let Some(at) = find(&self.buffer, END) {
                break at + END.len();
            }
            self.read()?;
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        let bad = || Error::new(ErrorKind::InvalidData, text.clone());
        if !text.starts_with("http/1.1 200 ") {
            return Err(bad());
        }
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        if let Some(length) = field("content-length:") {
            let length: usize = length.trim().parse().map_err(|_| bad())?;
            while self.buffer.len() < head + length {
                self.read()?;
            }
            let answer = self.buffer[head..head + length].to_vec();
            self.buffer.drain(..head + length);
            return Ok(answer);
        }
        if field("transfer-encoding:").map(str::trim) != Some("chunked") {
            return Err(bad());
        }
        self.buffer.drain(..head);
        self.chunks()
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut answer = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = find(&self.buffer, b"\r\n") {
                    break at;
                }
                self.read()?;
            };
            let length = std::str::from_utf8(&self.buffer[..line]).ok();
            let length = length.and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
            let length = length.ok_or(ErrorKind::InvalidData)?;
            let (begin, end) = (line + 2, line + 2 + length);
            while self.buffer.len() < end + 2 {
                self.read()?;
            }
            answer.extend_from_slice(&self.buffer[begin..end]);
            self.buffer.drain(..end + 2);
            if length == 0 {
                return Ok(answer);
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let mut piece = [0; 4 << 10];
        match self.stream.read(&mut piece)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|at| at == words)
}
