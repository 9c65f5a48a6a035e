package sqlitefile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite keeps no checksums of pages. A damaged key of an index then leads a search past its rows,
// and the answer lacks them. So the files of a Kind with PageSums have a checksum at the end of
// each page. It is made when SQLite writes the page into the file, and compared when SQLite reads
// it. Pages in the log have checksums of SQLite, which it compares when it opens the log.
//
// SQLite leaves the last bytes of each page alone if the header of the file says so. The rest is a
// VFS, the part of SQLite that calls the operating system: a copy of the usual one with another
// read and another write of database files. The tables of functions are in the memory of C.

// sumBytes is the size of a checksum, at the end of a page.
const sumBytes = 4

// Places in the header of a database file, from its documentation.
const (
	headerMagic    = "SQLite format 3\x00"
	headerPage     = 16 // size of a page, 2 bytes
	headerFormats  = 18 // versions of the form for writing and reading, a byte each
	headerReserved = 20 // bytes at the end of each page that SQLite leaves alone
	headerPayload  = 21 // three constants
	headerPages    = 28 // number of pages, 4 bytes
	headerRoot     = 52 // page of the largest root, 4 bytes; not 0: free pages can be given back
	headerVersion  = 60 // Kind.Format, 4 bytes
	headerVacuum   = 64 // not 0: in steps, 4 bytes
	headerKind     = 68 // the application, 4 bytes
	headerBytes    = 100
)

// pageSum returns the checksum of a page at an offset of the file.
func pageSum(page []byte, offset int64) uint32 {
	var place [8]byte
	binary.BigEndian.PutUint64(place[:], uint64(offset))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, page[:len(page)-sumBytes])
}

// sealPage writes the checksum of a page into it.
func sealPage(page []byte, offset int64) {
	binary.BigEndian.PutUint32(page[len(page)-sumBytes:], pageSum(page, offset))
}

// firstPage returns the only page of a database without tables, with room for checksums.
func firstPage() []byte {
	page := make([]byte, pageSize)
	copy(page, headerMagic)
	binary.BigEndian.PutUint16(page[headerPage:], pageSize)
	copy(page[headerFormats:], []byte{1, 1})
	page[headerReserved] = sumBytes
	copy(page[headerPayload:], []byte{64, 32, 32})
	binary.BigEndian.PutUint32(page[headerPages:], 1)
	binary.BigEndian.PutUint32(page[headerRoot:], 1)
	binary.BigEndian.PutUint32(page[headerVacuum:], 1)
	page[headerBytes] = 0x0d // a leaf of a table, without rows
	binary.BigEndian.PutUint16(page[headerBytes+5:], pageSize-sumBytes)
	sealPage(page, 0)
	return page
}

// begin writes the first page into a file that has none. A crash may have left a part of it. A log
// beside an empty file is of another one that had the name before: SQLite removes it too. A log
// beside a part of a page is not touched: it may have the only whole copy of the page.
func (k Kind) begin(ctx context.Context, file *os.File) error {
	if err := (gate{kind: k, file: file}).lock(ctx, syscall.LOCK_EX); err != nil { // closing the file ends it
		return err
	}
	there := make([]byte, pageSize+1)
	n, err := file.ReadAt(there, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the first page: %w", err)
	}
	page := firstPage()
	switch there = there[:n]; {
	case n > pageSize:
		return nil
	case n == pageSize && bytes.Equal(there, page):
		return nil
	case !bytes.HasPrefix(page, bytes.TrimRight(there, "\x00")): // something else
		return nil
	}
	log := file.Name() + "-wal"
	if beside, err := os.Stat(log); n > 0 && err == nil && beside.Size() > 0 {
		return nil // SQLite says what is wrong
	}
	if err := removeLog(log, k.syncDirectory); err != nil {
		return fmt.Errorf("remove the log of a file that is gone: %w", err)
	}
	if _, err := file.WriteAt(page, 0); err != nil {
		return fmt.Errorf("write the first page: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write the first page: %w", err)
	}
	return nil
}

// removeLog removes a log, if there is one, and makes that durable. A crash of the machine must not
// bring it back beside a page that was written since.
func removeLog(log string, syncDirectory func(string) error) error {
	switch err := os.Remove(log); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err //nolint:wrapcheck // the caller says what was done
	}
	return syncDirectory(filepath.Dir(log))
}

// The functions of SQLite that are replaced, as package lib declares them.
type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	readFunc  = func(tls *libc.TLS, file, to uintptr, n int32, offset int64) int32
	writeFunc = func(tls *libc.TLS, file, from uintptr, n int32, offset int64) int32
	traitFunc = func(tls *libc.TLS, file uintptr) int32
)

// sumVFS is the VFS of one kind of files. Invariant: it is in vfses for ever, so that the functions
// that SQLite knows by their addresses stay.
type sumVFS struct {
	name        string
	application uint32
	format      uint32
	usual       *sqlite3.Tsqlite3_vfs
	state       uintptr // where sumFile is behind the data that the usual VFS has of a file

	open   openFunc
	read   readFunc
	write  writeFunc
	traits traitFunc

	mu struct {
		sync.Mutex
		tables map[uintptr]uintptr // by a table of the usual VFS, that with the functions above
	}
}

// sumFile has the facts about an open database file.
type sumFile struct {
	usual  *sqlite3.Tsqlite3_io_methods
	exempt bool // it is of another program or an earlier format, and has no checksums
}

// vfses has the VFS of each application.
var vfses struct {
	sync.Mutex
	of map[int64]*sumVFS
}

// at returns what is at an address in the memory of C.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// address returns how SQLite names a function, a pointer to it as Go keeps it; function is the
// reverse.
func address[F any](f *F) uintptr { return *(*uintptr)(unsafe.Pointer(f)) }

func function[F any](address uintptr) F { return *(*F)(unsafe.Pointer(&address)) }

// vfs returns the name of the VFS with checksums for the files of a kind.
func (k Kind) vfs() (string, error) {
	vfses.Lock()
	defer vfses.Unlock()
	if v := vfses.of[k.Application]; v != nil {
		return v.name, nil
	}
	tls := libc.NewTLS()
	defer tls.Close()
	usual := sqlite3.Xsqlite3_vfs_find(tls, 0)
	if usual == 0 {
		return "", errors.New("SQLite has no VFS")
	}
	v := &sumVFS{
		name: fmt.Sprintf("sums-%x", k.Application), application: uint32(k.Application),
		format: uint32(k.Format), usual: at[sqlite3.Tsqlite3_vfs](usual),
	}
	v.mu.tables = map[uintptr]uintptr{}
	v.state = (uintptr(v.usual.FszOsFile) + 7) &^ 7
	v.open, v.read, v.write, v.traits = v.openFile, v.readPage, v.writePage, v.traitsOf
	own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*v.usual)))
	if own == 0 {
		return "", errors.New("no memory for a VFS")
	}
	copied := at[sqlite3.Tsqlite3_vfs](own)
	*copied = *v.usual
	copied.FszOsFile = int32(v.state + unsafe.Sizeof(sumFile{}))
	copied.FpNext, copied.FxOpen = 0, address(&v.open)
	var err error
	if copied.FzName, err = libc.CString(v.name); err != nil {
		return "", fmt.Errorf("name a VFS: %w", err)
	}
	if rc := sqlite3.Xsqlite3_vfs_register(tls, own, 0); rc != sqlite3.SQLITE_OK {
		return "", fmt.Errorf("register a VFS: SQLite's code %d", rc)
	}
	if vfses.of == nil {
		vfses.of = map[int64]*sumVFS{}
	}
	vfses.of[k.Application] = v
	return v.name, nil
}

// openFile opens a file as usual, and gives a database file the functions with checksums.
func (v *sumVFS) openFile(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	rc := function[openFunc](v.usual.FxOpen)(tls, vfs, name, file, flags, outFlags)
	if rc != sqlite3.SQLITE_OK || flags&sqlite3.SQLITE_OPEN_MAIN_DB == 0 {
		return rc
	}
	f := at[sqlite3.Tsqlite3_file](file)
	table := v.table(tls, f.FpMethods)
	if table == 0 {
		return sqlite3.SQLITE_NOMEM
	}
	*at[sumFile](file + v.state) = sumFile{usual: at[sqlite3.Tsqlite3_io_methods](f.FpMethods)}
	f.FpMethods = table
	return sqlite3.SQLITE_OK
}

// table returns the table of functions for files that would have another one; 0 without memory.
func (v *sumVFS) table(tls *libc.TLS, usual uintptr) uintptr {
	v.mu.Lock()
	defer v.mu.Unlock()
	if table := v.mu.tables[usual]; table != 0 {
		return table
	}
	table := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	if table == 0 {
		return 0
	}
	copied := at[sqlite3.Tsqlite3_io_methods](table)
	*copied = *at[sqlite3.Tsqlite3_io_methods](usual)
	copied.FiVersion = min(copied.FiVersion, 2) // without pages that are mapped instead of read
	copied.FxRead, copied.FxWrite = address(&v.read), address(&v.write)
	copied.FxDeviceCharacteristics = address(&v.traits)
	v.mu.tables[usual] = table
	return table
}

// readPage reads a part of a database file, and compares the checksum of a page.
func (v *sumVFS) readPage(tls *libc.TLS, file, to uintptr, n int32, offset int64) int32 {
	f := at[sumFile](file + v.state)
	rc := function[readFunc](f.usual.FxRead)(tls, file, to, n, offset)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	data := libc.GoBytes(to, int(n))
	if offset == 0 && len(data) >= headerBytes && !v.ours(f, data) {
		return sqlite3.SQLITE_CORRUPT
	}
	if f.exempt || len(data) != pageSize || offset%pageSize != 0 {
		return sqlite3.SQLITE_OK
	}
	if binary.BigEndian.Uint32(data[pageSize-sumBytes:]) != pageSum(data, offset) {
		return sqlite3.SQLITE_CORRUPT
	}
	return sqlite3.SQLITE_OK
}

// ours notes by its header whether a file is of another program, or of an earlier format of this
// kind; SQLite or the Kind refuses it then. It reports false for a file of this format whose pages
// have no checksums: the header is damaged.
func (v *sumVFS) ours(f *sumFile, header []byte) bool {
	application := binary.BigEndian.Uint32(header[headerKind:])
	format := binary.BigEndian.Uint32(header[headerVersion:])
	isDatabase := bytes.HasPrefix(header, []byte(headerMagic))
	hasSums := isDatabase && header[headerReserved] == sumBytes
	another := application != 0 && (application != v.application || format != 0 && format < v.format)
	f.exempt = !hasSums && (!isDatabase || another)
	return hasSums || f.exempt
}

// writePage writes a part of a database file. A page gets its checksum.
func (v *sumVFS) writePage(tls *libc.TLS, file, from uintptr, n int32, offset int64) int32 {
	f := at[sumFile](file + v.state)
	if !f.exempt && n == pageSize && offset%pageSize == 0 {
		sealPage(libc.GoBytes(from, pageSize), offset)
	}
	return function[writeFunc](f.usual.FxWrite)(tls, file, from, n, offset)
}

// traitsOf returns what SQLite may do with a file. It may not read parts of pages: they have no
// checksum.
func (v *sumVFS) traitsOf(tls *libc.TLS, file uintptr) int32 {
	f := at[sumFile](file + v.state)
	return function[traitFunc](f.usual.FxDeviceCharacteristics)(tls, file) &^ sqlite3.SQLITE_IOCAP_SUBPAGE_READ
}
