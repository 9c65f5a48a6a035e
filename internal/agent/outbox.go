package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// attemptKey identifies one attempt on this node.
type attemptKey struct {
	task    string // its local name
	attempt int32
}

// outbox holds the reports that no gateway has acknowledged yet, in memory and in one file. Each
// attempt has at most two reports: the newest about its start or progress, and its end. The file is
// a log of reports and acknowledgements. It is rewritten when it has grown, after an error, and at
// each start. outbox may be used by several goroutines.
//
// A record of the file: length (4 bytes, little endian), CRC-32C of the payload (4), payload: kind
// (1), an encoded TaskReport.
type outbox struct {
	dir     string
	changed chan struct{} // capacity 1: a report waits

	mu struct { // memory; held for moments only
		sync.Mutex
		slots   map[attemptKey]*slot
		order   []attemptKey // oldest first; invariant: its keys are those of slots
		unsaved []byte       // records that are not in the file yet
		urgent  bool         // unsaved has an end
	}
	io struct { // the file; held while the disk works; taken before mu
		sync.Mutex
		file   *os.File
		number uint64
		size   int64
		limit  int64 // size at which the file is rewritten
		broken bool  // the file may end in half a record: rewrite it
	}
}

type slot struct{ began, ended *plimsoll.TaskReport }

const (
	recordReport byte = 1
	recordAck    byte = 2

	recordHeader   = 8
	maxRecord      = 1 << 20
	rotateBytes    = 1 << 20
	outboxSuffix   = ".log"
	outboxUnnamed  = "next"
	outboxNameSize = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openOutbox loads the reports of an earlier agent. dropped is the number of bytes at the end of
// its file that could not be read, because the machine went down during a write.
func openOutbox(dir string) (o *outbox, dropped int64, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, fmt.Errorf("make the directory for reports: %w", err)
	}
	o = &outbox{dir: dir, changed: make(chan struct{}, 1)}
	o.mu.slots = map[attemptKey]*slot{}
	numbers, err := o.files()
	if err != nil {
		return nil, 0, err
	}
	if len(numbers) > 0 {
		o.io.number = numbers[len(numbers)-1]
		data, err := os.ReadFile(o.path(o.io.number))
		if err != nil {
			return nil, 0, fmt.Errorf("read the reports that wait: %w", err)
		}
		dropped = int64(len(data) - o.replay(data))
	}
	o.io.broken = true
	if err := o.flush(); err != nil {
		return nil, 0, err
	}
	for _, number := range numbers[:max(len(numbers)-1, 0)] {
		if err := os.Remove(o.path(number)); err != nil {
			return nil, 0, errors.Join(fmt.Errorf("remove old reports: %w", err), o.close())
		}
	}
	o.wake()
	return o, dropped, nil
}

func (o *outbox) path(number uint64) string {
	return filepath.Join(o.dir, fmt.Sprintf("%0*x%s", outboxNameSize, number, outboxSuffix))
}

// files returns the numbers of the existing files, in order.
func (o *outbox) files() ([]uint64, error) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, fmt.Errorf("list the files of reports: %w", err)
	}
	var numbers []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), outboxSuffix)
		if !ok || len(name) != outboxNameSize {
			continue
		}
		var number uint64
		if _, err := fmt.Sscanf(name, "%016x", &number); err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// replay applies the whole records at the start of data, and returns their length.
func (o *outbox) replay(data []byte) (used int) {
	for {
		rest := data[used:]
		if len(rest) < recordHeader {
			return used
		}
		n := int(binary.LittleEndian.Uint32(rest))
		if n == 0 || n > maxRecord || len(rest)-recordHeader < n {
			return used
		}
		payload := rest[recordHeader : recordHeader+n]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			return used
		}
		var report pb.TaskReport
		if err := proto.Unmarshal(payload[1:], &report); err != nil {
			return used
		}
		r := wire.TaskReportFromProto(&report)
		switch payload[0] {
		case recordReport:
			o.put(&r)
		case recordAck:
			o.drop(&r)
		default:
			return used
		}
		used += recordHeader + n
	}
}

func appendRecord(dst []byte, kind byte, r *plimsoll.TaskReport) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, recordHeader)...)
	dst = append(dst, kind)
	out, err := proto.MarshalOptions{}.MarshalAppend(dst, wire.TaskReportToProto(r))
	if err != nil {
		panic("a report with clean text cannot be encoded: " + err.Error())
	}
	payload := out[start+recordHeader:]
	binary.LittleEndian.PutUint32(out[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(out[start+4:], crc32.Checksum(payload, castagnoli))
	return out
}

// maxMessage bounds the text of a report.
const maxMessage = 4 << 10

// cleanMessage cuts a text to the bound and makes it valid UTF-8.
func cleanMessage(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxMessage)], "?") }

// add queues a report for sending. The next flush writes it to the file.
func (o *outbox) add(r plimsoll.TaskReport) {
	r.Message = cleanMessage(r.Message)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(&r)
	o.mu.unsaved = appendRecord(o.mu.unsaved, recordReport, &r)
	o.mu.urgent = o.mu.urgent || r.State == plimsoll.TaskFinished
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *outbox) put(r *plimsoll.TaskReport) {
	key := attemptKey{reportName(r), r.Attempt}
	s := o.mu.slots[key]
	if s == nil {
		s = &slot{}
		o.mu.slots[key] = s
		o.mu.order = append(o.mu.order, key)
	}
	if r.State == plimsoll.TaskFinished {
		s.ended = r
	} else if s.ended == nil {
		s.began = r
	}
}

// drop removes a report, unless a newer one took its place.
func (o *outbox) drop(r *plimsoll.TaskReport) {
	key := attemptKey{reportName(r), r.Attempt}
	s := o.mu.slots[key]
	if s == nil {
		return
	}
	if s.began != nil && *s.began == *r {
		s.began = nil
	}
	if s.ended != nil && *s.ended == *r {
		s.ended = nil
	}
	if s.began == nil && s.ended == nil {
		delete(o.mu.slots, key)
		// The usual case: the oldest is acknowledged first.
		if i := slices.Index(o.mu.order, key); i == 0 {
			o.mu.order = o.mu.order[1:]
		} else {
			o.mu.order = slices.Delete(o.mu.order, i, i+1)
		}
	}
}

// next returns up to limit waiting reports, oldest first. An attempt's start comes before its end.
func (o *outbox) next(limit int) []plimsoll.TaskReport {
	o.mu.Lock()
	defer o.mu.Unlock()
	var reports []plimsoll.TaskReport
	for _, key := range o.mu.order {
		s := o.mu.slots[key]
		for _, r := range []*plimsoll.TaskReport{s.began, s.ended} {
			if r == nil {
				continue
			}
			if len(reports) == limit {
				return reports
			}
			reports = append(reports, *r)
		}
	}
	return reports
}

// ack removes reports that were acknowledged.
func (o *outbox) ack(reports []plimsoll.TaskReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range reports {
		o.drop(&reports[i])
		o.mu.unsaved = appendRecord(o.mu.unsaved, recordAck, &reports[i])
	}
}

// ends returns the ends that wait.
func (o *outbox) ends() []plimsoll.TaskReport {
	o.mu.Lock()
	defer o.mu.Unlock()
	var reports []plimsoll.TaskReport
	for _, key := range o.mu.order {
		if r := o.mu.slots[key].ended; r != nil {
			reports = append(reports, *r)
		}
	}
	return reports
}

// flush writes new records, and makes ends durable. After an error the reports are still in memory,
// and the next flush rewrites the file.
func (o *outbox) flush() error {
	o.io.Lock()
	defer o.io.Unlock()
	o.mu.Lock()
	records, urgent := o.mu.unsaved, o.mu.urgent
	o.mu.unsaved, o.mu.urgent = nil, false
	anew := o.io.broken || o.io.size+int64(len(records)) > o.io.limit
	if anew {
		records = o.all()
	}
	o.mu.Unlock()
	if anew {
		return o.rewrite(records)
	}
	return o.write(records, urgent)
}

// all returns the records of all waiting reports.
func (o *outbox) all() []byte {
	var records []byte
	for _, key := range o.mu.order {
		s := o.mu.slots[key]
		for _, r := range []*plimsoll.TaskReport{s.began, s.ended} {
			if r != nil {
				records = appendRecord(records, recordReport, r)
			}
		}
	}
	return records
}

func (o *outbox) write(records []byte, urgent bool) error {
	if len(records) == 0 {
		return nil
	}
	_, err := o.io.file.Write(records)
	if err == nil && urgent {
		err = o.io.file.Sync()
	}
	if err != nil {
		o.io.broken = true
		return fmt.Errorf("keep reports in %s: %w", o.dir, err)
	}
	o.io.size += int64(len(records))
	return nil
}

// rewrite begins a new file with records. The old file is removed when the new one is durable.
func (o *outbox) rewrite(records []byte) error {
	o.io.broken = true
	temp := filepath.Join(o.dir, outboxUnnamed)
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("begin a new file of reports: %w", err)
	}
	_, err = f.Write(records)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(temp, o.path(o.io.number+1))
	}
	if err == nil {
		err = syncDir(o.dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write a new file of reports: %w", err), f.Close())
	}
	old, oldNumber := o.io.file, o.io.number
	o.io.file, o.io.number, o.io.size, o.io.broken = f, oldNumber+1, int64(len(records)), false
	o.io.limit = max(rotateBytes, 2*o.io.size)
	if old != nil {
		err = old.Close()
	}
	if removed := os.Remove(o.path(oldNumber)); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return fmt.Errorf("remove the old file of reports: %w", err)
	}
	return nil
}

// close flushes and closes the file.
func (o *outbox) close() error {
	err := o.flush()
	o.io.Lock()
	defer o.io.Unlock()
	if o.io.file == nil {
		return err
	}
	return errors.Join(err, o.io.file.Close())
}
