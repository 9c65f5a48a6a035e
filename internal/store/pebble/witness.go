package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// witnessName is the file, beside Pebble's own files, that records how much is durable.
const witnessName = "WITNESS"

// witnessSyncBytes is the size of the batches after which the witness itself is synced.
const witnessSyncBytes = 4 << 20

var witnessMagic = [8]byte{'p', 'l', 'i', 'm', 's', 't', 'o', 'r'}

// A witness is 48 bytes. The first 16 are the same in every format, so that a newer one can be
// distinguished from damage:
//
//	magic [8], format [4], checksum of the 12 before [4],
//	commits [8], epoch [8], revision [8], zero [4], checksum of all before [4]
const (
	witnessHeader = 16
	witnessSize   = 48
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeWitness(m meta) []byte {
	b := make([]byte, 0, witnessSize)
	b = append(b, witnessMagic[:]...)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = binary.BigEndian.AppendUint64(b, m.commits)
	b = binary.BigEndian.AppendUint64(b, m.epoch)
	b = binary.BigEndian.AppendUint64(b, m.revision)
	b = append(b, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeWitness returns the format alone if it is not formatVersion.
func decodeWitness(b []byte) (m meta, err error) {
	if len(b) < witnessHeader || [8]byte(b[:8]) != witnessMagic ||
		binary.BigEndian.Uint32(b[12:]) != crc32.Checksum(b[:12], castagnoli) {
		return m, errors.New("its first bytes are not those of a witness")
	}
	if m.format = binary.BigEndian.Uint32(b[8:]); m.format != formatVersion {
		return m, nil
	}
	if len(b) != witnessSize ||
		binary.BigEndian.Uint32(b[witnessSize-4:]) != crc32.Checksum(b[:witnessSize-4], castagnoli) {
		return m, errors.New("its checksum does not match")
	}
	m.commits = binary.BigEndian.Uint64(b[16:])
	m.epoch = binary.BigEndian.Uint64(b[24:])
	m.revision = binary.BigEndian.Uint64(b[32:])
	return m, nil
}

// witness records, outside of Pebble's files, the last durable batch. Pebble opens both a log that
// lost its end and one that a crash tore before its end was acknowledged. The witness
// distinguishes them.
//
// It is written after each batch became durable, and synced only now and then. So it never claims
// too much. After the death of the process it is exact. After the death of the machine it lacks at
// most witnessSyncBytes of batches.
type witness struct {
	file vfs.File
	mu   struct {
		sync.Mutex
		last     meta // the highest meta recorded
		unsynced int
		closed   bool
	}
}

// readWitness returns the content of the witness in dir; ok is false if there is none.
func readWitness(fs vfs.FS, dir string) (data []byte, ok bool, err error) {
	file, err := fs.Open(fs.PathJoin(dir, witnessName))
	if isNotExist(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	data, err = io.ReadAll(io.LimitReader(file, 4096))
	return data, true, errors.Join(err, file.Close())
}

// openWitness creates a witness, or continues an existing one. A new one appears whole or not at
// all.
func openWitness(fs vfs.FS, dir string, exists bool, last meta) (*witness, error) {
	path := fs.PathJoin(dir, witnessName)
	if !exists {
		if err := createWitness(fs, dir, path, last); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	file, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	w := &witness{file: file}
	if err := w.note(last, witnessSyncBytes); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

func createWitness(fs vfs.FS, dir, path string, last meta) error {
	temp := path + ".new"
	file, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(encodeWitness(last))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// note records that a batch is durable, with its size.
func (w *witness) note(last meta, size int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed || last.commits <= w.mu.last.commits {
		return nil
	}
	w.mu.last = last
	if _, err := w.file.WriteAt(encodeWitness(last), 0); err != nil {
		return fmt.Errorf("write %s: %w", witnessName, err)
	}
	if w.mu.unsynced += size; w.mu.unsynced < witnessSyncBytes {
		return nil
	}
	w.mu.unsynced = 0
	if err := w.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", witnessName, err)
	}
	return nil
}

func (w *witness) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.closed = true
	return w.file.Close()
}
