package token

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
)

// maxFileBytes bounds a file that is read; a token has under 64 bytes.
const maxFileBytes = 4096

// Load reads the token of a kind from a file. Only the file's user may be able to read the file.
func Load(kind Kind, path string) (Token, error) {
	data, err := readPrivate(path, syscall.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Token{}, &plimsoll.Error{Code: plimsoll.CodeUnauthenticated, Err: err, Msg: fmt.Sprintf(
			"there is no file %s with the %s token; the server makes it at its first start, and on another machine it has to be copied",
			path, kind)}
	}
	if err != nil {
		return Token{}, err
	}
	t, err := Parse(string(data))
	if err != nil {
		return Token{}, plimsoll.Errorf(plimsoll.CodeInvalid, "the file %s: %v; if it is damaged, remove it: the server makes another at its next start",
			path, err)
	}
	if t.kind != kind {
		return Token{}, plimsoll.Errorf(
			plimsoll.CodeInvalid, "the file %s holds %v; %s %s token is needed here", path, t, article(kind), kind,
		)
	}
	t.file = path
	return t, nil
}

// readPrivate reads a small regular file that only its user can read.
func readPrivate(path string, flags int) (data []byte, err error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0) // with O_NONBLOCK opening a FIFO does not block
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = plimsoll.Errorf(
				plimsoll.CodeDenied, "the token file %s belongs to another user; ask them for a copy, and name that",
				path,
			)
		}
		return nil, err //nolint:wrapcheck // it names the file
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the token file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, plimsoll.Errorf(plimsoll.CodeInvalid, "%s is not a regular file; name the file of a token", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, plimsoll.Errorf(plimsoll.CodeDenied, "the token file %s can be used by other users (its mode is %04o), so the token may be known: "+
			"run chmod 600 %s, or, if somebody may have read it, remove it and restart the server", path, mode, path)
	}
	if data, err = io.ReadAll(io.LimitReader(f, maxFileBytes)); err != nil {
		return nil, fmt.Errorf("read the token file %s: %w", path, err)
	}
	return data, nil
}

// Make reads the token of a kind from a file. If there is no such file, it makes a token and the
// file. The file appears whole, and is on the disk when Make returns.
func Make(kind Kind, path string) (Token, error) {
	if _, err := os.Stat(path); err == nil {
		return Load(kind, path)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Token{}, cannotMake(kind, path, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return Token{}, cannotMake(kind, path, err)
	}
	made := New(kind)
	err := writeNew(path, []byte(*made.text+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return Load(kind, path) // another process was faster
	}
	if err != nil {
		return Token{}, cannotMake(kind, path, err)
	}
	made.file = path
	return made, nil
}

func cannotMake(kind Kind, path string, err error) error {
	return plimsoll.Errorf(plimsoll.CodeInvalid, "the file %s for the %s token cannot be made: %v; choose another file by --%s-token-file",
		path, kind, err, kind)
}

// writeNew makes a file that only its user can read. It fails if the file exists.
func writeNew(path string, data []byte) (err error) {
	written, err := writeTemporary(path, data)
	if err != nil {
		return err
	}
	err = errors.Join(os.Link(written, path), os.Remove(written))
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// replace makes a file that only its user can read, and replaces the file if it exists.
func replace(path string, data []byte) error {
	written, err := writeTemporary(path, data)
	if err != nil {
		return err
	}
	if err := os.Rename(written, path); err != nil {
		return errors.Join(err, os.Remove(written))
	}
	return nil
}

func writeTemporary(path string, data []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return "", err //nolint:wrapcheck // it names the file
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err //nolint:wrapcheck // it names the directory
	}
	return errors.Join(d.Sync(), d.Close())
}
