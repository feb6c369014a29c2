package database

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	driver "github.com/glebarez/go-sqlite"
)

// FileError is why a file can't be the database, and what to do about it.
type FileError struct{ Found, Next string }

// Error says what was found, and what to do about it.
func (e *FileError) Error() string { return e.Found + "; " + e.Next }

// CheckFile checks what can be said of the file at path without opening it as a database. A file that does not exist yet is new. FileError.
func CheckFile(path string) (isNew bool, err error) {
	const next = "correct " + DatabaseSetting
	folder := filepath.Dir(path)
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		switch _, err := os.Stat(folder); {
		case errors.Is(err, fs.ErrNotExist):
			return false, &FileError{path + " can't be created: there is no folder " + folder, "create the folder, or " + next}
		case err != nil:
			return false, &FileError{path + " can't be created: " + err.Error(), next}
		}
		if err := writable(folder); err != nil {
			return false, &FileError{
				path + " can't be created: " + err.Error(), "let this user write to the folder " + folder + ", or " + next,
			}
		}
		return true, nil
	case err != nil:
		return false, &FileError{err.Error(), next + ", or the file's permissions"}
	case info.IsDir():
		return false, &FileError{path + " is a folder, not a file", next + " to name a file in it"}
	case !info.Mode().IsRegular():
		return false, &FileError{path + " is no file", next}
	}
	// SQLite keeps its log beside the file.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(file.Close(), writable(folder))
	}
	if err != nil {
		return false, &FileError{path + " can't be written: " + err.Error(), "let this user write to the file and to the folder " + folder}
	}
	return false, nil
}

// writable returns nil if files can be made in the folder.
func writable(folder string) error {
	probe, err := os.CreateTemp(folder, ".firsttap-doctor-*")
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		return named.Err // the name of the probe tells nobody anything
	}
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// FileAdvice says what to do about the error of a file that SQLite does not open.
func FileAdvice(path string, err error) string {
	const notADatabase, corrupt = 26, 11
	var refused *driver.Error
	switch {
	case IsBusy(err):
		return "another process has locked the file: end it, as the file is for a single instance"
	case errors.As(err, &refused) && (refused.Code()&0xff == notADatabase || refused.Code()&0xff == corrupt):
		return "the file is no SQLite database, or is damaged: name another one in " + DatabaseSetting + ", or restore a backup"
	}
	return "check the permissions of the file and of " + filepath.Dir(path) + ", and that the disk is not full"
}
