package plimsoll

// ArchiveMode says what a cell does with jobs that have ended.
type ArchiveMode uint8

// The modes.
const (
	ArchiveNone ArchiveMode = iota + 1 // they are forgotten after a while
	ArchiveKept                        // an archive keeps them

	numArchiveModes
)

var archiveModeNames = [numArchiveModes]string{"", "none", "kept"}

// Known reports whether this version has the mode.
func (m ArchiveMode) Known() bool { return m >= ArchiveNone && m < numArchiveModes }

// String returns the mode's word.
func (m ArchiveMode) String() string { return wordOf(archiveModeNames[:], m) }

// ArchiveStatus says how far the archive has come, as of a revision of the active store.
type ArchiveStatus struct {
	Mode ArchiveMode
	ID   string // of the archive
	// Sequence is the number of the archive's last write behind which jobs may have left the active
	// store. A reader that opens another archive, or an older copy, finds a lower one.
	Sequence uint64
	Trouble  string // why the archive takes no jobs at present; empty: it takes them
}
