/* A stand-in for libnvidia-ml.so.1 that plays the machine described by the file $VGPU_NVML_STANDIN.
 *
 * It has the functions that the agent calls, with NVML's binary interface, and nothing else. The file is read anew
 * at each call, so a test changes the machine by writing the file. Lines, in any order:
 *   driver 550.54.15 | cuda 12040 | init CODE | count CODE | hang 1 (names are not answered until this line is gone)
 *   card uuid=U name=N_with_underscores memory_mib=M minor=N bus=00000000:3B:00.0 mig=0|1 error=CODE (no handle)
 *        broken=CODE (name unreadable) action=N remap_failed=0|1 links=BUS,switch,... events=MASK
 *   event INDEX TYPE DATA (the n-th such line is given out once, by the n-th wait that finds it)
 *   wait CODE (waiting fails)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CARDS 16
#define OK 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define TIMEOUT 10

struct card {
    char uuid[96], name[96], bus[32], links[256];
    unsigned long long memory_mib, events;
    unsigned minor, mig;
    int error, broken, action, remap_failed;
};

struct machine {
    char driver[80];
    int cuda, init, count_code, hang, wait_code, cards, events;
    struct card card[CARDS];
    struct { int index; unsigned long long type, data; } event[64];
};

static char handles[CARDS];
static int users, given_out;

static void pause_ms(int ms) {
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

static void set_field(struct card *card, const char *key, const char *value) {
    if (!strcmp(key, "uuid")) snprintf(card->uuid, sizeof card->uuid, "%s", value);
    else if (!strcmp(key, "name")) snprintf(card->name, sizeof card->name, "%s", value);
    else if (!strcmp(key, "bus")) snprintf(card->bus, sizeof card->bus, "%s", value);
    else if (!strcmp(key, "links")) snprintf(card->links, sizeof card->links, "%s", value);
    else if (!strcmp(key, "memory_mib")) card->memory_mib = strtoull(value, NULL, 10);
    else if (!strcmp(key, "events")) card->events = strtoull(value, NULL, 0);
    else if (!strcmp(key, "minor")) card->minor = atoi(value);
    else if (!strcmp(key, "mig")) card->mig = atoi(value);
    else if (!strcmp(key, "error")) card->error = atoi(value);
    else if (!strcmp(key, "broken")) card->broken = atoi(value);
    else if (!strcmp(key, "action")) card->action = atoi(value);
    else if (!strcmp(key, "remap_failed")) card->remap_failed = atoi(value);
}

static void read_card(struct card *card, char *words) {
    char *save, *word;
    memset(card, 0, sizeof *card);
    card->events = 0xB;
    card->action = -1;
    for (word = strtok_r(words, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        char *value = strchr(word, '=');
        if (value) {
            *value++ = 0;
            set_field(card, word, value);
        }
    }
    for (char *c = card->name; *c; c++)
        if (*c == '_') *c = ' ';
}

static struct machine look(void) {
    struct machine m = {.driver = "0", .cuda = 12000};
    const char *path = getenv("VGPU_NVML_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    if (!file) {
        m.init = 9;
        return m;
    }
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "driver %79s", m.driver) || sscanf(line, "cuda %d", &m.cuda) ||
            sscanf(line, "init %d", &m.init) || sscanf(line, "count %d", &m.count_code) ||
            sscanf(line, "hang %d", &m.hang) || sscanf(line, "wait %d", &m.wait_code))
            continue;
        if (!strncmp(line, "card ", 5) && m.cards < CARDS) read_card(&m.card[m.cards++], line + 5);
        if (m.events < 64 && sscanf(line, "event %d %llu %llu", &m.event[m.events].index, &m.event[m.events].type,
                                    &m.event[m.events].data) == 3)
            m.events++;
    }
    fclose(file);
    return m;
}

static int find(void *device, struct card *card) {
    struct machine m = look();
    long index = (char *)device - handles;
    if (!users) return UNINITIALIZED;
    if (index < 0 || index >= m.cards) return INVALID_ARGUMENT;
    *card = m.card[index];
    return card->error;
}

static int link_end(void *device, unsigned link, char *end) {
    struct card card;
    int code = find(device, &card);
    char *save, *word;
    if (code) return code;
    for (word = strtok_r(card.links, ",", &save); word; word = strtok_r(NULL, ",", &save))
        if (!link--) {
            snprintf(end, 32, "%.31s", word);
            return OK;
        }
    return INVALID_ARGUMENT;
}

int standin_users(void) { return users; }
void standin_reset(void) { users = given_out = 0; }

int nvmlInitWithFlags(unsigned flags) {
    int code = look().init;
    (void)flags;
    if (!code) users++;
    return code;
}

int nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    users--;
    return OK;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    struct machine m = look();
    if (!users) return UNINITIALIZED;
    snprintf(text, size, "%s", m.driver);
    return OK;
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    *version = look().cuda;
    return users ? OK : UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    struct machine m = look();
    *count = m.cards;
    return users ? m.count_code : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    struct card card;
    if (index >= CARDS) return INVALID_ARGUMENT;
    *device = &handles[index];
    return find(*device, &card);
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    struct card card;
    int code = find(device, &card);
    snprintf(text, size, "%s", code ? "" : card.uuid);
    return code;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    struct card card;
    int code = find(device, &card);
    while (look().hang) pause_ms(2);
    if (!code) code = card.broken;
    snprintf(text, size, "%s", code ? "" : card.name);
    return code;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    struct card card;
    int code = find(device, &card);
    if (!code) *minor = card.minor;
    return code;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    struct card card;
    int code = find(device, &card);
    if (code) return code;
    if (!card.memory_mib) return NOT_SUPPORTED;
    memory->total = card.memory_mib << 20;
    memory->free = memory->total;
    memory->used = 0;
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    struct card card;
    int code = find(device, &card);
    memset(pci, 0, sizeof *pci);
    if (!code) snprintf(pci->bus_id, sizeof pci->bus_id, "%s", card.bus);
    return code;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    struct card card;
    int code = find(device, &card);
    if (!code) *current = *pending = card.mig;
    return code;
}

struct field { unsigned id, scope; long long time, latency; int type, code; union { unsigned ui; double d; } value; };

int nvmlDeviceGetFieldValues(void *device, int count, struct field *values) {
    struct card card;
    int code = find(device, &card);
    for (int i = 0; !code && i < count; i++) {
        values[i].code = card.action < 0 ? NOT_SUPPORTED : OK;
        values[i].value.ui = card.action < 0 ? 0 : card.action;
    }
    return code;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    struct card card;
    int code = find(device, &card);
    *corrected = *uncorrected = *pending = *failed = 0;
    if (!code) *failed = card.remap_failed;
    return code;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
    char end[32];
    *active = 1;
    return link_end(device, link, end);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *type) {
    char end[32] = "";
    int code = link_end(device, link, end);
    *type = strcmp(end, "switch") ? 0 : 2;
    return code;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    return link_end(device, link, pci->bus_id);
}

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) {
    struct card card;
    int code = find(device, &card);
    if (!code) *types = card.events;
    return code;
}

int nvmlEventSetCreate(void **set) {
    static char one;
    *set = &one;
    return users ? OK : UNINITIALIZED;
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return users ? OK : UNINITIALIZED;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    struct card card;
    int code = find(device, &card);
    (void)set;
    return code ? code : types & ~card.events ? NOT_SUPPORTED : OK;
}

struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms) {
    (void)set;
    memset(event, 0, sizeof *event);
    for (unsigned waited = 0;; waited += 2) {
        struct machine m = look();
        if (!users) return UNINITIALIZED;
        if (m.wait_code) return m.wait_code;
        if (given_out < m.events) {
            event->device = &handles[m.event[given_out].index];
            event->type = m.event[given_out].type;
            event->data = m.event[given_out].data;
            given_out++;
            return OK;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        pause_ms(2);
    }
}
