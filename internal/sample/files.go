package sample

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

const (
	groupFiles = 6 // most descriptors of one group
	fileShare  = 8 // the groups may keep one in eight of the process's descriptors
)

// defaultFiles returns the number of descriptors that the groups may keep.
func defaultFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 / fileShare // every Linux grants 1024
	}
	return int(min(limit.Cur, 1<<20)) / fileShare
}

// open opens the counters of a group, and keeps them open if there is room.
func (s *Sampler) open(t *tracked) error {
	r, err := t.group.Reader(t.options)
	if err != nil {
		return err
	}
	if s.room == 0 {
		return r.Close() // it was opened only to check that the group exists
	}
	s.room--
	t.reader = r
	return nil
}

// close closes the open files of a group.
func (s *Sampler) close(t *tracked) error {
	if t.reader == nil {
		return nil
	}
	s.room++
	return t.reader.Close()
}

// read reads the counters of a group. If known is false, gone reports whether the group was
// removed.
func (s *Sampler) read(t *tracked) (known, gone bool) {
	if t.reader != nil {
		err := t.reader.Read(s.buf, &s.reading, (s.sequence+t.phase)%RefreshSweeps == 0)
		return err == nil, err != nil
	}
	r, err := t.group.Reader(t.options)
	if err != nil {
		return false, errors.Is(err, cgroup.ErrGone) // or there is no descriptor for it now
	}
	err = r.Read(s.buf, &s.reading, true)
	s.closing = errors.Join(s.closing, r.Close())
	return err == nil, err != nil
}
