"""Archives as publishers give them, on disk and on a server, for tests of the data scripts."""

import http.server
import io
import tarfile
import zipfile


def pack(path, files, root="lfw/"):
    """`path`, now an archive of the kind its name says, or a folder: `files` below `root`, and a text file."""
    files = {"README.txt": b"made up", **files}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as out:
            for name, content in files.items():
                out.writestr(root + name, content)
    elif path.suffix in (".tgz", ".tar"):
        with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as out:
            for name, content in files.items():
                member = tarfile.TarInfo(root + name)
                member.size = len(content)
                out.addfile(member, io.BytesIO(content))
    else:
        for name, content in files.items():
            (path / root / name).parent.mkdir(parents=True, exist_ok=True)
            (path / root / name).write_bytes(content)
    return path


def stored(folder):
    """Relative path -> bytes of every file below `folder`, hidden ones too."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Archives(http.server.BaseHTTPRequestHandler):
    """Serves one body; counts its bytes sent; may know Range or not, and may break off."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        start = int(asked[6:-1]) if asked and server.ranges else 0
        if start >= len(server.body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(server.body) - start))
        self.end_headers()
        self.wfile.write(server.body[start : server.breaks_at])

    def log_message(self, *_):
        pass
