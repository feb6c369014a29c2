package schedule_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// setClock shifts the clock of the process pid by whole seconds, and lets the process go. This thread traces the process,
// which stands before its first instruction. The clock's rate does not change.
//
// A Go program does not get the time from libc, which libfaketime could replace, but from the kernel's code in each process,
// the vDSO. setClock replaces the clock function in the process's copy of it.
func setClock(pid int, off time.Duration) error {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("the process has not stopped: %#x", status)
	}
	if err := replaceClock(pid, off); err != nil {
		return err
	}
	return syscall.PtraceDetach(pid)
}

func replaceClock(pid int, off time.Duration) error {
	from, to, err := vdso(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, from); err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	code := clockCode(int32(off / time.Second))
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(code)) {
			_, err := memory.WriteAt(code, from+int64(s.Value))
			return err
		}
	}
	return errors.New("the vDSO has no such function")
}

// vdso returns the address of the kernel's code in the process.
func vdso(pid int) (from, to int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, errors.New("the process has no vDSO")
}

// clockCode is clock_gettime(clock, *time) for amd64: it calls the kernel, and adds the seconds if clock is the wall clock.
func clockCode(seconds int32) []byte {
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x07, // jnz over the next
		0x48, 0x81, 0x06, // add qword ptr [rsi], seconds
	}
	return append(binary.LittleEndian.AppendUint32(code, uint32(seconds)), 0xc3) // ret
}
